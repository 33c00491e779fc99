"""Tables for pandas: the same columns, types and values, whatever the database and the rows."""

from __future__ import annotations

import configparser
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import psycopg
import pytest
from sqlalchemy import event

from syncswitch.storage import frames
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import DatabaseError, UserError
from syncswitch.storage.importing import import_runs, read_table
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.trials.store import TrialStore
from tests.storage.conftest import RECORD, both_databases
from tests.storage.filled import complete, copy_rows

NO_FINGERPRINT = "0" * 64

MAKERS: dict[frames.FrameName, Callable[..., pd.DataFrame]] = {
    "trials": frames.trials,
    "evaluations": frames.evaluations,
    "events": frames.events,
    "switch_points": frames.switch_points,
    "policies": frames.policies,
    "uses": frames.uses,
    "search_costs": frames.search_costs,
    "time_to_accuracy": lambda *args, **choice: frames.time_to_accuracy(
        *args, target_accuracy=0.9, **choice
    ),
}
every_table = pytest.mark.parametrize("name", sorted(MAKERS))


@pytest.fixture
def moment() -> datetime:
    return datetime(2026, 1, 31, 12, tzinfo=timezone.utc)  # when the runs of `digits` began


@every_table
def test_a_table_has_the_columns_and_types_that_are_described(
    filled: Database, name: frames.FrameName
) -> None:
    described = frames.describe(name)
    for frame in (MAKERS[name](filled), MAKERS[name](filled, fingerprint=NO_FINGERPRINT)):
        assert list(frame.columns) == list(described["column"])
        assert [str(dtype) for dtype in frame.dtypes] == list(described["dtype"])
    assert len(MAKERS[name](filled)) > 0
    assert (described["meaning"].str.len() > 0).all()


@every_table
def test_values_are_missing_only_where_it_is_described(
    filled: Database, name: frames.FrameName
) -> None:
    frame = MAKERS[name](filled)
    for column in frames.COLUMNS[name]:
        if not column.nullable:
            assert frame[column.name].notna().all(), column.name


def test_sqlite_and_postgresql_give_identical_tables(filled_url: str, postgresql_url: str) -> None:
    with (
        open_database(filled_url, create=False) as source,
        open_database(postgresql_url, create=True) as target,
    ):
        copy_rows(source, target)
        for name, make in MAKERS.items():
            is_sum = name in {"switch_points", "search_costs"}  # added up in another order
            pd.testing.assert_frame_equal(
                make(source), make(target), check_exact=not is_sum, rtol=1e-12, obj=name
            )


def test_software_is_json_text(filled: Database) -> None:
    software = frames.trials(filled, workload="digits", state="complete")["software"]
    assert set(software) == {'{"tensorflow": "2.16.1"}'}


Keep = Callable[[pd.DataFrame], Any]


@pytest.mark.parametrize(
    ("choice", "keep"),
    [
        ({"workload": "digits"}, lambda f: f["workload"] == "digits"),
        ({"workload": "job.py:larger"}, lambda f: f["workload"] == "larger"),
        ({"study": "digits-1"}, lambda f: f["study"] == "digits-1"),
        ({"trial_number": 1}, lambda f: f["trial_number"] == 1),
        ({"state": "failed"}, lambda f: f["state"] == "failed"),
        ({"kinds": ["use"]}, lambda f: f["use_id"].notna()),
        ({"kinds": ("search", "import")}, lambda f: f["use_id"].isna()),
        ({"candidate_percent": 50}, lambda f: f["candidate_percent"] == 50),
        ({"trial_ids": pd.Series([3, 1])}, lambda f: f["trial_id"].isin([1, 3])),
        ({"trial_ids": []}, lambda f: f["trial_id"] < 0),
        (
            {"workload": "digits", "state": "complete", "candidate_percent": 50.0},
            lambda f: (
                (f["workload"] == "digits")
                & (f["state"] == "complete")
                & (f["candidate_percent"] == 50)
            ),
        ),
        ({"workload": None, "since": None}, lambda f: f["trial_id"] > 0),
    ],
)
def test_the_database_chooses_the_trials(
    filled: Database, choice: dict[str, Any], keep: Keep
) -> None:
    everything = frames.trials(filled)
    wanted = everything[keep(everything).fillna(False)].reset_index(drop=True)
    assert len(wanted) < len(everything) or choice.get("workload", "") is None
    pd.testing.assert_frame_equal(frames.trials(filled, **choice), wanted)
    curves = frames.evaluations(filled)
    pd.testing.assert_frame_equal(
        frames.evaluations(filled, **choice),
        curves[curves["trial_id"].isin(wanted["trial_id"])].reset_index(drop=True),
    )


def test_a_workload_is_chosen_by_its_fingerprint_or_the_start_of_it(filled: Database) -> None:
    fingerprint = frames.trials(filled, workload="larger")["fingerprint"][0]
    assert set(frames.trials(filled, fingerprint=fingerprint)["workload"]) == {"larger"}
    assert set(frames.trials(filled, workload=fingerprint[:8])["workload"]) == {"larger"}


def test_trials_are_chosen_by_when_they_began(filled: Database, moment: datetime) -> None:
    later = moment + timedelta(seconds=60)
    zone = timezone(timedelta(hours=5, minutes=30))

    def began(**choice: datetime) -> list[int]:
        numbers = frames.trials(filled, study="digits-1", state="complete", **choice)
        return list(numbers["trial_number"])

    assert began(since=moment) == [0, 1, 2]
    assert began(since=moment + timedelta(microseconds=1)) == [2]
    assert began(until=later) == [0, 1]  # not those that began at that moment
    assert began(since=moment.astimezone(zone), until=later.astimezone(zone)) == [0, 1]
    assert list(frames.trials(filled, until=datetime(1980, 1, 1, tzinfo=zone))["trial_id"]) == []


def test_a_hundred_thousand_trials_can_be_named(filled: Database) -> None:
    pd.testing.assert_frame_equal(
        frames.trials(filled, trial_ids=range(1, 100_001)), frames.trials(filled)
    )


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"fingerprint": "0123abcd"}, "fingerprint is '0123abcd'; allowed: all its 64 digits"),
        ({"state": "stale"}, "state is 'stale'; allowed: running, complete, failed"),
        ({"candidate_percent": 101}, "candidate_percent is 101; allowed: 0 to 100"),
        ({"candidate_percent": float("nan")}, "candidate_percent is nan"),
        ({"since": datetime(2026, 1, 31)}, "since is '2026-01-31 00:00:00'; allowed: .* time zone"),
        ({"until": "2026-01-31"}, "until is '2026-01-31'; allowed: a datetime with a time zone"),
        (
            {"wrkload": "digits"},
            "'wrkload' does not select runs; allowed: candidate_percent, .*, workload",
        ),
    ],
)
def test_an_impossible_choice_is_refused(
    filled: Database, choice: dict[str, Any], words: str
) -> None:
    for make in (frames.trials, frames.evaluations, MAKERS["time_to_accuracy"]):
        with pytest.raises(UserError, match=words):
            make(filled, **choice)


@every_table
def test_a_url_will_do(filled: Database, filled_url: str, name: frames.FrameName) -> None:
    pd.testing.assert_frame_equal(MAKERS[name](filled_url), MAKERS[name](filled))


@every_table
def test_a_database_that_is_not_there_is_not_made(folder: Path, name: frames.FrameName) -> None:
    with pytest.raises(DatabaseError, match="no database at"):
        MAKERS[name](f"sqlite:///{folder}/none.db")
    assert list(folder.iterdir()) == []


def test_chunks_are_parts_of_the_whole(filled: Database) -> None:
    whole = frames.evaluations(filled)
    for rows in (1, 7, len(whole), len(whole) + 1):
        chunks = list(frames.evaluations(filled, chunk_rows=rows))
        assert [len(chunk) for chunk in chunks[:-1]] == [rows] * (len(chunks) - 1)
        assert 0 < len(chunks[-1]) <= rows
        pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), whole)
    assert list(frames.evaluations(filled, chunk_rows=5, fingerprint=NO_FINGERPRINT)) == []


@pytest.mark.parametrize("rows", [0, -5])
def test_impossible_chunks_are_refused_at_once(filled: Database, rows: int) -> None:
    with pytest.raises(UserError, match=f"chunk_rows is {rows}; allowed: 1 or more"):
        frames.evaluations(filled, chunk_rows=rows)


def test_a_server_sends_no_more_than_a_chunk(any_filled: Database) -> None:
    cursors: list[Any] = []
    listener = (any_filled.engine, "after_cursor_execute", lambda *seen: cursors.append(seen[1]))
    event.listen(*listener)
    try:
        chunks = frames.evaluations(any_filled, chunk_rows=3)
        next(chunks)
        if any_filled.engine.dialect.name == "postgresql":
            assert isinstance(cursors[-1], psycopg.ServerCursor)
        else:
            assert len(cursors[-1].fetchall()) == len(frames.evaluations(any_filled)) - 3
    finally:
        event.remove(*listener)


def test_chunks_that_nobody_takes_give_the_connection_back(filled: Database) -> None:
    chunks = frames.evaluations(filled, chunk_rows=3)
    next(chunks)
    assert filled.engine.pool.checkedout() == 1  # type: ignore[attr-defined]
    chunks.close()  # type: ignore[attr-defined]
    assert filled.engine.pool.checkedout() == 0  # type: ignore[attr-defined]


@both_databases
def test_chunks_are_all_of_one_moment(database: Database, store: TrialStore) -> None:
    complete(store, "digits-1", 0, RECORD)
    chunks = frames.evaluations(database, chunk_rows=1)
    read = [next(chunks)]
    complete(store, "digits-1", 1, RECORD)  # and the writer need not wait for the reader
    read.extend(chunks)
    assert [list(chunk["worker_step"]) for chunk in read] == [[500], [1000]]
    assert len(frames.evaluations(database)) == 4


@pytest.mark.parametrize("target", [0.0, 0.55, 0.8, 0.9, 1.0])
def test_time_to_accuracy_is_the_first_evaluation_at_the_target(
    filled: Database, target: float
) -> None:
    frame = frames.time_to_accuracy(filled, target_accuracy=target).set_index("trial_id")
    runs = frames.trials(filled, state="complete").set_index("trial_id")
    curves = frames.evaluations(filled)
    assert list(frame.index) == list(runs.index)
    for trial_id, run in runs.iterrows():
        curve = curves[curves["trial_id"] == trial_id]
        is_less_better = run["metric_goal"] == "min"
        is_there = curve["value"] <= target if is_less_better else curve["value"] >= target
        reached = curve[is_there]["elapsed_seconds"]
        row = frame.loc[trial_id]
        assert row["is_censored"] == (len(reached) == 0)
        if len(reached):
            assert row["observed_seconds"] == row["time_to_accuracy_seconds"] == reached.min()
        else:
            assert pd.isna(row["time_to_accuracy_seconds"])
            same = row["observed_seconds"] == run["training_seconds"]
            assert same or (pd.isna(run["training_seconds"]) and pd.isna(row["observed_seconds"]))
    assert set(frame["target_value"]) == {target}


def test_where_less_is_better_the_metric_has_its_own_values(filled: Database) -> None:
    runs = frames.trials(filled, workload="disturbed")
    assert set(runs["metric"]) == {"regret"}
    assert set(runs["metric_goal"] + " " + runs["metric_unit"]) == {"min EUR"}
    for which in ("converged", "final", "target"):
        assert (runs[f"{which}_value"] == -runs[f"{which}_accuracy"]).all()
    curves = frames.evaluations(filled, workload="disturbed")
    assert (curves["value"] == -curves["accuracy"]).all()
    points = frames.switch_points(filled, workload="disturbed")
    assert (points["mean_value"] == -points["mean_accuracy"]).all()
    versions = frames.policies(filled, workload="disturbed")
    assert (versions["target_value"] == -versions["target_accuracy"]).all()
    assert (versions["mean_value"] == -versions["mean_accuracy"]).all()


def test_some_runs_reached_the_target_and_some_did_not(filled: Database) -> None:
    censored = frames.time_to_accuracy(filled, target_accuracy=0.9)["is_censored"]
    assert set(censored) == {True, False}


@pytest.mark.parametrize("target", [float("inf"), float("nan")])
def test_an_impossible_target_is_refused(filled: Database, target: float) -> None:
    with pytest.raises(UserError, match=r"target_accuracy is .*; give a number"):
        frames.time_to_accuracy(filled, target_accuracy=target)


def test_policies_are_those_of_the_registry(filled: Database) -> None:
    registry = PolicyRegistry(filled)
    frame = frames.policies(filled)
    assert len(frame) == 4
    for row in frame.to_dict("records"):
        policy = registry.get(row["fingerprint"], row["version"])
        assert policy is not None
        assert (row["switch_percent"], row["study"]) == (policy.switch_percent, policy.study)
        assert row["speed_up"] == policy.speed_up
        assert row["evidence_runs"] == len(policy.evidence) > 0
        assert row["created_at"].isoformat() == policy.created_at
        workload = registry.workload(row["fingerprint"])
        assert workload is not None
        simulated = workload.identity.simulated_cluster
        assert (
            None if pd.isna(row["simulated_cluster"]) else row["simulated_cluster"]
        ) == simulated
    frame = frame[frame["workload"] != "disturbed"].reset_index(drop=True)
    is_real = frame["simulated_cluster"].isna()
    real, simulated = frame[is_real], frame[~is_real]
    assert dict(zip(real["version"], real["aliases"], strict=True)) == {
        1: "pinned",
        2: "current,tried",
    }
    assert [*simulated["aliases"]] == ["current"]
    pd.testing.assert_frame_equal(frames.policies(filled, workload="generated"), frame)
    assert len(frames.policies(filled, workload="larger")) == 0


def test_search_costs_are_chosen(filled: Database) -> None:
    everything = frames.search_costs(filled)
    assert len(everything) == 6
    assert [*everything[everything["simulated_cluster"].notna()]["trainer"]] == ["simulated"]
    for choice, column in (
        ({"workload": "larger"}, "workload"),
        ({"study": "under-way"}, "study"),
        ({"fingerprint": everything["fingerprint"][0]}, "fingerprint"),
    ):
        (value,) = choice.values()
        wanted = everything[everything[column] == value].reset_index(drop=True)
        assert 0 < len(wanted) < len(everything)
        pd.testing.assert_frame_equal(frames.search_costs(filled, **choice), wanted)


# What a plain install has: nothing that only extras bring.
PLAIN = """
import sys
sys.modules["pyarrow"] = None
from syncswitch.storage import frames
url = sys.argv[1]
for frame in (
    frames.trials(url),
    frames.evaluations(url),
    next(frames.evaluations(url, chunk_rows=5)),
    frames.events(url),
    frames.switch_points(url),
    frames.policies(url),
    frames.uses(url),
    frames.search_costs(url),
    frames.time_to_accuracy(url, target_accuracy=0.5),
    frames.describe("trials"),
):
    print(len(frame) > 0)
"""


def test_a_plain_install_makes_every_table(filled: Database) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, filled.url], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True"] * (len(MAKERS) + 2)
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    assert "pandas" in setup["options"]["install_requires"]


def test_the_facts_are_the_only_description_of_trials() -> None:
    assert [column.name for column in frames.COLUMNS["trials"]] == TRIAL_FACTS.columns.keys()


# Switch point, mean accuracy and seconds as the published tables have them; switch point 12.5 was
# run at 10, 6.25 at 5 and 3.125 at 2.
PUBLISHED = {
    "resnet32-cifar10-8": [
        (100.0, 0.9188, 10604.0),
        (50.0, 0.9202, 5994.0),
        (25.0, 0.9178, 3883.0),
        (12.5, 0.9142, 2543.0),
        (6.25, 0.9182, 2084.0),
        (3.125, 0.9037, 1776.0),
        (0.0, 0.8918, 1607.0),
    ],
    "resnet32-cifar10-16": [
        (100.0, 0.9229, None),
        (50.0, 0.9206, None),
        (25.0, None, None),
        (0.0, None, None),
    ],
}


def test_switch_points_of_the_published_logs_are_the_published_means(
    database: Database, published: Path
) -> None:
    import_runs(database, read_table(published / "runs.csv"))
    frame = frames.switch_points(database)
    for workload, known in PUBLISHED.items():
        found = frame[(frame["workload"] == workload) & (frame["first_protocol"] == "bsp")]
        assert list(found["candidate_percent"]) == [switch_point for switch_point, _, _ in known]
        for row, (_, accuracy, seconds) in zip(found.to_dict("records"), known, strict=True):
            if accuracy is None:
                assert row["diverged_runs"] == row["runs"] > 0
            else:
                assert row["diverged_runs"] == 0
                assert row["mean_accuracy"] == pytest.approx(accuracy, abs=1e-4)
            if seconds is not None:
                assert row["mean_training_seconds"] == pytest.approx(seconds, rel=0.01)
