"""The statistics of switch points, against Python's own."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sqlalchemy import insert

from syncswitch.storage.database.engine import Database
from syncswitch.storage.metrics import whole_run_seconds
from syncswitch.storage.queries.summaries import SwitchPointStatistics, switch_point_statistics
from syncswitch.storage.records.trial import PhaseRecord
from syncswitch.storage.tables.trials import PHASES, TRIALS
from syncswitch.storage.trials.workloads import upsert_workload
from tests.failing import fails
from tests.properties import FIXTURES_STAY
from tests.records import changed
from tests.storage.conftest import IDENTITY, both_databases

pytestmark = both_databases

_names = itertools.count()
_MOMENT = datetime(2026, 1, 31, tzinfo=timezone.utc)

Run = dict[str, Any]


def run(candidate_percent: float | None = 50.0, **values: Any) -> Run:
    """The row of a completed run."""
    return {
        "candidate_percent": candidate_percent,
        "switch_percent": candidate_percent or 0.0,
        "replicate": 0,
        "state": "complete",
        "worker_steps": 1000,
        "converged_accuracy": 0.9,
        "final_accuracy": 0.9,
        "converged": True,
        "diverged": False,
        "stopped_early": False,
        "training_seconds": 10.0,
        "inherited_seconds": 0.0,
        "switch_overhead_seconds": 0.0,
        "target_accuracy": None,
        "time_to_accuracy_seconds": None,
        "started_at": _MOMENT,
        "ended_at": _MOMENT + timedelta(seconds=10),
        **values,
    }


def add(database: Database, runs: Sequence[Run]) -> str:
    """Adds runs to a workload of their own; returns its fingerprint."""
    own = changed(IDENTITY, name=f"w{next(_names)}", model=f"model {next(_names)}")
    with database.transaction() as connection:
        upsert_workload(connection, own.job, own.name)
        for number, values in enumerate(runs):
            row = {
                "fingerprint": own.fingerprint,
                **asdict(own.protocols),
                "source": f"{own.name}/{number}",
                **values,
            }
            phase = row.pop("phase", None)
            trial_id = connection.scalar(insert(TRIALS).values(row).returning(TRIALS.c.trial_id))
            if phase is not None:
                values = {"trial_id": trial_id, "position": 0, **asdict(phase)}
                connection.execute(insert(PHASES).values(values))
    return own.fingerprint


def stopped(whole: Run, worker_steps: int) -> Run:
    """The run as it was when so many of its 1000 worker-steps were done, at an even pace."""
    seconds = whole["training_seconds"] * worker_steps / 1000
    protocol = "bsp" if whole["switch_percent"] == 100 else "asp"
    return {
        **whole,
        "stopped_early": True,
        "worker_steps": worker_steps,
        "training_seconds": seconds,
        "phase": PhaseRecord(protocol, 0, worker_steps, seconds, None, None),
    }


def summary(database: Database, runs: Sequence[Run]) -> list[SwitchPointStatistics]:
    return switch_point_statistics(database, fingerprint=add(database, runs))


unit = st.floats(0, 1)
seconds = st.floats(1e-3, 1e7)
random_runs = st.lists(
    st.builds(
        lambda switch_point, accuracy, final, total, share, overhead, diverged, worker_steps: (
            stopped(
                run(
                    switch_point,
                    converged_accuracy=accuracy,
                    final_accuracy=final,
                    training_seconds=total,
                    inherited_seconds=total * share * worker_steps / 1000,
                    switch_overhead_seconds=overhead,
                    diverged=diverged,
                ),
                worker_steps,
            )
            if worker_steps < 1000
            else run(switch_point, diverged=diverged)
        ),
        st.sampled_from([100.0, 50.0, 12.5]),
        unit,
        unit,
        seconds,
        unit,
        seconds,
        st.booleans(),
        st.integers(1, 1000),
    ),
    min_size=1,
    max_size=25,
)


def whole_time(of: Run) -> float | None:
    phases = [of["phase"]] if "phase" in of else []
    return whole_run_seconds(of["training_seconds"], phases, of["worker_steps"], 1000)


def close(value: float | None) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


@given(runs=random_runs)
@FIXTURES_STAY
def test_means_and_deviations_are_those_of_python(database: Database, runs: list[Run]) -> None:
    found = summary(database, runs)
    assert [s.candidate_percent for s in found] == sorted(
        {r["candidate_percent"] for r in runs}, reverse=True
    )
    for one in found:
        mine = [r for r in runs if r["candidate_percent"] == one.candidate_percent]
        good = [{**r, "whole_run_seconds": whole_time(r)} for r in mine if not r["diverged"]]
        assert (one.runs, one.diverged_runs) == (len(mine), len(mine) - len(good))
        assert one.stopped_runs == sum(r["stopped_early"] for r in good)
        for mean, name in (
            (one.mean_accuracy, "converged_accuracy"),
            (one.mean_final_accuracy, "final_accuracy"),
            (one.mean_training_seconds, "whole_run_seconds"),
            (one.mean_switch_overhead_seconds, "switch_overhead_seconds"),
        ):
            values = [r[name] for r in good]
            assert mean == (close(statistics.fmean(values)) if good else None)
        paid = [r["training_seconds"] - r["inherited_seconds"] for r in good]
        assert one.mean_paid_seconds == (close(statistics.fmean(paid)) if good else None)
        for deviation, name in (
            (one.sd_accuracy, "converged_accuracy"),
            (one.sd_training_seconds, "whole_run_seconds"),
        ):
            values = [r[name] for r in good]
            assert deviation == (close(statistics.stdev(values)) if len(good) > 1 else None)


def test_a_spread_keeps_its_digits(database: Database) -> None:
    values = [1e9 + offset for offset in (0.0, 0.001, 0.002, 0.003)]
    (one,) = summary(database, [run(training_seconds=value) for value in values])
    # The squares of the values themselves, 1e18, have no digit left for it.
    assert one.sd_training_seconds == pytest.approx(statistics.stdev(values), rel=1e-6)
    for count in range(2, 12):  # equal values, though their mean is rounded
        (one,) = summary(database, [run(training_seconds=5592405.839177748)] * count)
        assert one.sd_training_seconds == pytest.approx(0, abs=1e-12)
    (one,) = summary(database, [run(converged_accuracy=value) for value in (0.0, 1e-200)])
    assert (one.mean_accuracy, one.sd_accuracy) == (5e-201, 0.0)  # its square is no number


def test_the_interval_is_students_and_ends_where_accuracies_do(database: Database) -> None:
    values = [0.91, 0.92, 0.915, 0.9]
    fingerprint = add(database, [run(converged_accuracy=value) for value in values])
    for confidence in (0.5, 0.95, 0.999):
        (one,) = switch_point_statistics(database, fingerprint=fingerprint, confidence=confidence)
        expected = stats.t.interval(
            confidence, 3, statistics.fmean(values), statistics.stdev(values) / math.sqrt(4)
        )
        assert (one.lower_accuracy, one.upper_accuracy) == pytest.approx(expected, rel=1e-9)
    (one,) = summary(database, [run(converged_accuracy=value) for value in (0.2, 0.9)])
    assert (one.lower_accuracy, one.upper_accuracy) == (0.0, 1.0)


def test_what_chooses_no_switch_point_is_refused(database: Database) -> None:
    for confidence in (0.0, 1.0, -1, 95, math.nan):
        with fails("parameter-invalid", "between 0 and 1"):
            switch_point_statistics(database, confidence=confidence)
    with fails("parameter-invalid", "'state' does not select runs; allowed: fingerprint, sin"):
        switch_point_statistics(database, state="complete")  # type: ignore[call-arg]


def test_only_completed_runs_that_count_for_a_switch_point(database: Database) -> None:
    failed = {**run(), "state": "failed", "failure": "lost"}
    assert summary(database, [failed, run(None)]) == []


def test_the_speed_up_is_against_the_first_protocol_alone(database: Database) -> None:
    runs = [
        run(100.0, training_seconds=30.0),
        run(100.0, training_seconds=50.0),
        run(100.0, training_seconds=1000.0, diverged=True),
        run(25.0, training_seconds=10.0),
    ]
    assert [one.speed_up for one in summary(database, runs)] == [1.0, 4.0]
    (alone,) = summary(database, runs[-1:])
    assert alone.speed_up is None


def test_a_run_whose_whole_time_is_unknown_is_in_no_mean_of_times(database: Database) -> None:
    paceless = {**stopped(run(), 500), "phase": None}
    runs = [run(training_seconds=8.0), run(training_seconds=12.0), paceless, paceless]
    (one,) = summary(database, runs)
    assert (one.runs, one.stopped_runs, one.mean_training_seconds) == (4, 2, 10.0)
    assert one.sd_training_seconds == close(statistics.stdev([8.0, 12.0]))
    (alone,) = summary(database, [paceless])
    assert (alone.mean_accuracy, alone.mean_paid_seconds) == (0.9, 5.0)
    assert (alone.mean_training_seconds, alone.speed_up) == (None, None)


def test_times_to_one_target_are_averaged_and_those_that_never_came_counted(
    database: Database,
) -> None:
    runs = [
        run(target_accuracy=0.9, time_to_accuracy_seconds=4.0),
        run(target_accuracy=0.9, time_to_accuracy_seconds=6.0),
        run(target_accuracy=0.9),
        run(target_accuracy=0.9, diverged=True),
    ]
    (one,) = summary(database, runs)
    assert (one.target_accuracy, one.mean_time_to_accuracy_seconds) == (0.9, 5.0)
    assert one.censored_runs == 1
    other = run(target_accuracy=0.8, time_to_accuracy_seconds=1.0)
    (one,) = summary(database, [*runs, other])
    assert (one.target_accuracy, one.mean_time_to_accuracy_seconds) == (None, None)
    assert one.censored_runs is None


def test_the_choice_is_that_of_the_baseline_too(database: Database) -> None:
    early, late = _MOMENT, _MOMENT + timedelta(days=1)
    runs = [
        run(100.0, started_at=early, training_seconds=20.0),
        run(100.0, started_at=late, training_seconds=40.0),
        run(50.0, started_at=late, training_seconds=10.0),
    ]
    fingerprint = add(database, runs)
    later = switch_point_statistics(database, fingerprint=fingerprint, since=late)
    assert [(one.runs, one.speed_up) for one in later] == [(1, 1.0), (1, 4.0)]
    earlier = switch_point_statistics(database, fingerprint=fingerprint, until=late)
    assert [(one.candidate_percent, one.runs) for one in earlier] == [(100.0, 1)]


def test_runs_under_different_conditions_are_kept_apart(database: Database) -> None:
    conditions: list[Run] = [
        {},
        {"switch_mechanism": "restart"},
        {"online": "elastic"},
        {"injections": "kill:ps,at=60%"},
        {"injections": "kill:ps,at=60%", "online": "elastic"},
    ]
    runs = [
        {**run(percent, training_seconds=seconds * number), **values}
        for number, values in enumerate(conditions, start=1)
        for percent, seconds in ((100.0, 20.0), (50.0, 10.0), (50.0, 6.0))
    ]
    found = summary(database, runs)
    usual = {"online": "none", "switch_mechanism": "hot", "injections": None}
    assert [
        (
            one.under.online,
            one.under.switch_mechanism,
            one.under.injections,
            one.candidate_percent,
            one.runs,
        )
        for one in found
    ] == [
        (*(usual | values).values(), percent, count)
        for values in conditions
        for percent, count in ((100.0, 1), (50.0, 2))
    ]
    times = [value * number for number in range(1, 6) for value in (20.0, 8.0)]
    assert [one.mean_training_seconds for one in found] == pytest.approx(times)
    assert [one.speed_up for one in found] == pytest.approx([1.0, 2.5] * 5)


def test_workloads_are_kept_apart(any_filled: Database) -> None:
    found = switch_point_statistics(any_filled)
    assert len({one.job.fingerprint for one in found}) == 5
    # A simulated job and a real one are two, whatever else they share.
    simulated = [one for one in found if one.job.simulated_cluster is not None]
    assert {(one.job.workload, one.job.workers) for one in simulated} == {("generated", 4)}
    assert {one.job.fingerprint for one in simulated}.isdisjoint(
        {one.job.fingerprint for one in found if one.job.simulated_cluster is None}
    )
    keys = [(one.job.fingerprint, one.candidate_percent) for one in found]
    assert len(set(keys)) == len(keys)
    (recorded,) = {one.job.fingerprint for one in found if one.job.workload == "recorded"}
    assert switch_point_statistics(any_filled, workload="recorded") == [
        one for one in found if one.job.fingerprint == recorded
    ]
    assert [
        (one.candidate_percent, one.runs, one.diverged_runs)
        for one in found
        if one.job.fingerprint == recorded
    ] == [(37.5, 1, 0), (0.0, 1, 1)]
