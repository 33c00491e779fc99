"""Runs that were stopped early or forked, against the whole runs that they stand for.

A worker-step takes 6 ms with BSP and 2 ms with ASP, and the model is tested every 50.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import FatalError
from syncswitch.storage.metrics import converged_accuracy, time_to_accuracy_seconds
from syncswitch.storage.queries import run_rows
from syncswitch.storage.queries.search_costs import study_costs
from syncswitch.storage.queries.summaries import switch_point_statistics
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialRecord
from syncswitch.storage.tables.trials import TRIALS
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Fork
from tests.storage.conftest import RECORD, both_databases
from tests.storage.filled import OWNER, complete

pytestmark = both_databases

STUDY = "digits-1"
W = 1000
PACE = {"bsp": 0.006, "asp": 0.002}
TARGETS = [0.05, 0.2, 0.205, 0.37, 0.45, 0.6, 0.7, 0.99]

Rows = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """A training run from `start` to `end`; at W, its accuracy would be what it `reached`."""

    switch: int
    reached: float
    parent: int | None = None
    start: int = 0
    end: int = W
    diverged: bool = False

    def phases(self, start: int, end: int) -> tuple[PhaseRecord, ...]:
        both = (
            ("bsp", start, min(self.switch, end), 0.0),
            ("asp", max(self.switch, start), end, None),
        )
        return tuple(
            PhaseRecord(name, a, b, (b - a) * PACE[name], staleness, None)
            for name, a, b, staleness in both
            if b > a
        )

    def seconds(self, worker_step: int) -> float:
        return math.fsum(phase.seconds for phase in self.phases(0, worker_step))

    def evaluations(self) -> tuple[Evaluation, ...]:
        steps = range(50 * (self.start // 50 + 1), self.end + 1, 50)
        return tuple(
            Evaluation(step, self.seconds(step), self.reached * step / W, 0.5) for step in steps
        )


RUNS = {
    0: Run(switch=W, reached=0.8),
    1: Run(switch=W, reached=0.7, end=600),
    2: Run(switch=500, reached=0.6, parent=0, start=250),
    3: Run(switch=375, reached=0.9, parent=2, start=375, end=700),
    4: Run(switch=125, reached=0.1, parent=0, start=125, end=150, diverged=True),
    5: Run(switch=250, reached=0.9, parent=0, start=250, end=250, diverged=True),
    6: Run(switch=500, reached=0.8, end=350),
}
"""A baseline, a stopped one, a fork, a fork of it that was stopped, two forks that diverged, the
second one at once, and a run that was stopped before its switch."""


def record_of(run: Run, replicate: int) -> TrialRecord:
    evaluations = run.evaluations()
    is_forked_after_switch = run.start >= run.switch or run.switch == W
    return replace(
        RECORD,
        spec=replace(RECORD.spec, switch_percent=100 * run.switch / W, seed=1, replicate=replicate),
        worker_steps=run.end,
        evaluations=evaluations,
        phases=run.phases(run.start, run.end),
        converged_accuracy=converged_accuracy(evaluations),
        diverged=run.diverged,
        converged=not run.diverged,
        stopped_early=run.end < W and not run.diverged,
        training_seconds=run.seconds(run.end),
        inherited_seconds=run.seconds(run.start),
        switch_overhead_seconds=0.0 if is_forked_after_switch else 0.25,
    )


def whole_curve(number: int, until: int = W) -> list[Evaluation]:
    """Evaluations of a run from its first worker-step on, its ancestors' included."""
    run = RUNS[number]
    before = [] if run.parent is None else whole_curve(run.parent, run.start)
    return before + [one for one in run.evaluations() if one.worker_step <= until]


@pytest.fixture
def made(store: TrialStore) -> TrialStore:
    for number, run in RUNS.items():
        fork = None if run.parent is None else Fork(run.parent, 100 * run.start / W)
        complete(store, STUDY, number, record_of(run, number), fork)
    return store


def test_trials_say_how_they_ended_how_long_the_whole_is_and_what_they_come_from(
    database: Database, made: TrialStore
) -> None:
    spec = replace(RECORD.spec, fork_from=Path("checkpoints/37.5.npz"))
    with pytest.raises(FatalError, match="no trial 9"):
        made.begin(STUDY, 7, spec, OWNER, fork=Fork(9, 37.5))
    made.begin(STUDY, 7, spec, OWNER, fork=Fork(3, 37.5))
    two_phases = Run(switch=500, reached=0.8, end=800)
    complete(made, STUDY, 8, record_of(two_phases, 8))
    found = made.numbered(STUDY)
    assert {n: (one.end, one.times.whole_run_seconds, one.fork) for n, one in found.items()} == {
        0: ("whole", 6.0, None),
        1: ("stopped", 6.0, None),
        2: ("whole", 4.0, Fork(0, 25.0)),
        3: ("stopped", pytest.approx(3.5), Fork(2, 37.5)),
        4: ("diverged", None, Fork(0, 12.5)),
        5: ("diverged", None, Fork(0, 25.0)),
        6: ("stopped", None, None),  # with ASP it had made no worker-step
        7: (None, None, Fork(3, 37.5)),
        8: ("stopped", pytest.approx(two_phases.seconds(W)), None),
    }
    assert found[7].parent_trial_id == found[3].trial_id
    with database.transaction(read_only=True) as connection:
        files = set(connection.scalars(select(TRIALS.c.fork_from)))
    assert files == {None, "checkpoints/37.5.npz"}
    for number, run in RUNS.items():
        assert found[number].times.paid_seconds == run.seconds(run.end) - run.seconds(run.start)


def test_the_time_to_an_accuracy_counts_from_the_start_of_the_whole_run(
    database: Database, made: TrialStore
) -> None:
    ids = {number: trial.trial_id for number, trial in made.numbered(STUDY).items()}
    for target in TARGETS:
        with database.transaction(read_only=True) as connection:
            found = connection.execute(run_rows.accuracy_times({}, target)).mappings().all()
        times = {row["trial_id"]: row for row in found}
        made.set_target(STUDY, target)
        stored = made.numbered(STUDY)
        for number, run in RUNS.items():
            seconds = time_to_accuracy_seconds(whole_curve(number), target)
            row = times[ids[number]]
            assert row["time_to_accuracy_seconds"] == seconds
            assert row["is_censored"] == (seconds is None)
            observed = run.seconds(run.end) if seconds is None else seconds
            assert row["observed_seconds"] == observed
            assert stored[number].target.seconds == seconds
    with database.transaction(read_only=True) as connection:  # without its ancestors
        (row,) = connection.execute(run_rows.accuracy_times({"trial_ids": [ids[3]]}, 0.2)).all()
    assert (row.trial_id, row.time_to_accuracy_seconds) == (ids[3], 1.5)


def test_means_and_costs_are_those_of_whole_runs(database: Database, made: TrialStore) -> None:
    found = {one.candidate_percent: one for one in switch_point_statistics(database)}
    assert {
        percent: (one.runs, one.stopped_runs, one.mean_training_seconds, one.speed_up)
        for percent, one in found.items()
    } == {
        100.0: (2, 1, 6.0, 1.0),
        50.0: (2, 1, 4.0, 1.5),
        37.5: (1, 1, pytest.approx(3.5), pytest.approx(6.0 / 3.5)),
        25.0: (1, 0, None, None),  # it diverged, as the next one
        12.5: (1, 0, None, None),
    }
    assert found[50.0].mean_switch_overhead_seconds == 0.25
    assert found[37.5].mean_switch_overhead_seconds is None  # its checkpoint is that of the switch
    (cost,) = study_costs(database)
    paid = math.fsum(run.seconds(run.end) - run.seconds(run.start) for run in RUNS.values())
    assert cost.cost.paid_seconds == pytest.approx(paid)
    assert cost.cost.baseline_seconds == 6.0
    assert cost.cost.bsp_multiples == pytest.approx(paid / 6.0)
