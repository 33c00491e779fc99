"""Tables for pandas: the same columns, types and values, whatever the database and the rows."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import psycopg
import pytest
from sqlalchemy import event

from syncswitch.storage import frames
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.trials.store import TrialStore
from tests.failing import fails
from tests.identities import GENERATED
from tests.records import changed
from tests.storage.conftest import RECORD, both_databases
from tests.storage.filled import complete, copy_rows
from tests.wording import Said

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


@every_table
def test_a_table_has_the_columns_and_types_that_are_described(
    filled: Database, filled_url: str, folder: Path, name: frames.FrameName
) -> None:
    described = frames.describe(name)
    frame = MAKERS[name](filled)
    none = MAKERS[name](filled, fingerprint=NO_FINGERPRINT)
    for one in (frame, none):
        assert list(one.columns) == list(described["column"])
        assert [str(dtype) for dtype in one.dtypes] == list(described["dtype"])
    assert len(frame) > len(none) == 0
    assert (described["meaning"].str.len() > 0).all()
    for column in frames.COLUMNS[name]:
        assert column.nullable or frame[column.name].notna().all(), column.name
    pd.testing.assert_frame_equal(MAKERS[name](filled_url), frame)  # a URL will do
    with fails("database-not-found"):
        MAKERS[name](f"sqlite:///{folder}/none.db")
    assert list(folder.iterdir()) == []


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


LARGER = changed(GENERATED, name="larger", workers=8).fingerprint


@pytest.mark.parametrize(
    ("choice", "keep"),
    [
        ({"workload": "digits"}, lambda f: f["workload"] == "digits"),
        ({"workload": "job.py:larger"}, lambda f: f["workload"] == "larger"),
        ({"workload": LARGER[:8]}, lambda f: f["workload"] == "larger"),
        ({"fingerprint": LARGER}, lambda f: f["workload"] == "larger"),
        ({"study": "digits-1"}, lambda f: f["study"] == "digits-1"),
        ({"trial_number": 1}, lambda f: f["trial_number"] == 1),
        ({"state": "failed"}, lambda f: f["state"] == "failed"),
        ({"kinds": ["use"]}, lambda f: f["use_id"].notna()),
        ({"kinds": ("search", "import")}, lambda f: f["use_id"].isna()),
        ({"candidate_percent": 50}, lambda f: f["candidate_percent"] == 50),
        ({"trial_ids": pd.Series([3, 1])}, lambda f: f["trial_id"].isin([1, 3])),
        ({"trial_ids": []}, lambda f: f["trial_id"] < 0),
        ({"workload": None, "since": None}, lambda f: f["trial_id"] > 0),
        ({"trial_ids": range(1, 100_001)}, lambda f: f["trial_id"] > 0),
    ],
)
def test_the_database_chooses_the_trials(
    filled: Database, choice: dict[str, Any], keep: Callable[[pd.DataFrame], Any]
) -> None:
    everything = frames.trials(filled)
    wanted = everything[keep(everything).fillna(False)].reset_index(drop=True)
    pd.testing.assert_frame_equal(frames.trials(filled, **choice), wanted)
    curves = frames.evaluations(filled)
    pd.testing.assert_frame_equal(
        frames.evaluations(filled, **choice),
        curves[curves["trial_id"].isin(wanted["trial_id"])].reset_index(drop=True),
    )


def test_an_impossible_choice_is_refused(filled: Database, said: Said) -> None:
    for choice in (
        {"fingerprint": "0123abcd"},
        {"state": "stale"},
        {"candidate_percent": 101},
        {"candidate_percent": math.nan},
        {"since": datetime(2026, 1, 31)},
        {"until": "2026-01-31"},
        {"wrkload": "digits"},
    ):
        for make in (frames.trials, frames.evaluations, MAKERS["time_to_accuracy"]):
            with pytest.raises(UserError) as caught:
                make(filled, **choice)
        said(caught.value)


def test_an_impossible_number_is_refused(filled: Database) -> None:
    for rows in (0, -5):
        with fails("parameter-invalid", f"chunk_rows is {rows}; allowed: 1 or more"):
            frames.evaluations(filled, chunk_rows=rows)
    for target in (math.inf, math.nan):
        with fails("parameter-invalid", r"target_accuracy is .*; give a number"):
            frames.time_to_accuracy(filled, target_accuracy=target)


def test_chunks_are_parts_of_the_whole(filled: Database) -> None:
    whole = frames.evaluations(filled)
    for rows in (1, 7, len(whole), len(whole) + 1):
        chunks = list(frames.evaluations(filled, chunk_rows=rows))
        assert [len(chunk) for chunk in chunks[:-1]] == [rows] * (len(chunks) - 1)
        assert 0 < len(chunks[-1]) <= rows
        pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), whole)
    assert list(frames.evaluations(filled, chunk_rows=5, fingerprint=NO_FINGERPRINT)) == []


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
    assert any_filled.engine.pool.checkedout() == 1  # type: ignore[attr-defined]
    chunks.close()  # type: ignore[attr-defined]
    assert any_filled.engine.pool.checkedout() == 0  # type: ignore[attr-defined]


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
        reached = curve[is_there]["elapsed_seconds"].min()  # NaN of none
        row = frame.loc[trial_id]
        assert row["is_censored"] == pd.isna(reached)
        until = run["training_seconds"] if pd.isna(reached) else reached
        found = row[["time_to_accuracy_seconds", "observed_seconds"]].tolist()
        assert found == pytest.approx([reached, until], abs=0, nan_ok=True)
    assert set(frame["target_value"]) == {target}
    assert len(set(frame["is_censored"])) == 2 or target in (0.0, 1.0)


def test_where_less_is_better_the_metric_has_its_own_values(filled: Database) -> None:
    runs = frames.trials(filled, workload="disturbed")
    assert set(runs["metric"] + " " + runs["metric_goal"] + " " + runs["metric_unit"]) == {
        "regret min EUR"
    }
    for name, columns in (
        ("trials", ("converged_", "final_", "target_")),
        ("evaluations", ("",)),
        ("switch_points", ("mean_",)),
        ("policies", ("target_", "mean_")),
    ):
        frame = MAKERS[name](filled, workload="disturbed")
        for which in columns:
            assert (frame[f"{which}value"] == -frame[f"{which}accuracy"]).all()


def test_policies_are_those_of_the_registry(filled: Database) -> None:
    registry = PolicyRegistry(filled)
    frame = frames.policies(filled)
    assert len(frame) == 4
    for row in frame.to_dict("records"):
        entry = registry.entry(row["fingerprint"], row["version"])
        policy, simulated = entry.policy, entry.identity.simulated_cluster
        assert (row["switch_percent"], row["study"]) == (policy.switch_percent, policy.study)
        assert (row["speed_up"], row["aliases"]) == (
            policy.measured.speed_up,
            ",".join(entry.aliases),
        )
        assert row["evidence_runs"] == len(policy.evidence) > 0
        assert row["created_at"].isoformat() == policy.created_at
        of_row = row["simulated_cluster"]
        assert (None if pd.isna(of_row) else of_row) == simulated
    generated = frame[frame["workload"] == "generated"].reset_index(drop=True)
    assert set(generated["aliases"]) == {"pinned", "current,tried", "current"}
    assert generated["simulated_cluster"].notna().tolist().count(True) == 1
    pd.testing.assert_frame_equal(frames.policies(filled, workload="generated"), generated)
    assert len(frames.policies(filled, workload="larger")) == 0


# What a plain install has: nothing that only extras bring.
PLAIN = """
import sys
class NotInstalled:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NotInstalled)
from syncswitch.storage import frames
for name in frames.COLUMNS:
    given = {"target_accuracy": 0.5} if name == "time_to_accuracy" else {}
    print(name, len(getattr(frames, name)(sys.argv[1], **given)) > 0)
"""


def test_a_plain_install_makes_every_table(filled: Database) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, filled.url], capture_output=True, text=True, check=True
    )
    assert done.stdout.count(" True\n") == len(MAKERS)
