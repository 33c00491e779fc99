"""The view of trials: its columns are those that are documented, and each says what it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from sqlalchemy import Table, inspect, select

from syncswitch.storage.columns import TrialFacts, columns_of_record
from syncswitch.storage.database.engine import Database
from syncswitch.storage.metrics import whole_run_seconds
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import PhaseRecord, TrialState
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import FAILED_SWITCHES, PHASES, TRIALS, WORKLOADS
from tests.storage.conftest import both_databases
from tests.storage.filled import REGRET

Parts = Callable[[Table, int], list[dict[str, Any]]]


def facts(database: Database) -> list[dict[str, Any]]:
    query = select(TRIAL_FACTS).order_by(TRIAL_FACTS.c.trial_id)
    with database.transaction(read_only=True) as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def expected(row: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """What the view has to say of a trial: of the rows in `syncswitch_trials` and others."""
    phases = parts(PHASES, row["trial_id"])
    failed = parts(FAILED_SWITCHES, row["trial_id"])
    metric = REGRET if row["name"] == "disturbed" else Metric()
    is_complete = row["state"] == "complete"
    seconds, inherited = row["training_seconds"], row["inherited_seconds"]
    row = {
        **row,
        **metric.naming,
        **{
            f"{which}_value": None if accuracy is None else metric.value(accuracy)
            for which in ("converged", "final", "target")
            for accuracy in [row[f"{which}_accuracy"]]
        },
        "workload": row["name"],
        "kind": "search" if row["study"] else "import" if row["source"] else "use",
        "paid_seconds": None if seconds is None else seconds - inherited,
        "whole_run_seconds": _whole_run_seconds(row, phases),
        "time_to_accuracy_is_censored": row["time_to_accuracy_seconds"] is None
        if is_complete and row["target_accuracy"] is not None
        else None,
        "failed_switches": len(failed),
        "guard_lost_seconds": sum(one["lost_seconds"] for one in failed) or None,
    }
    for which in ("first", "second"):
        mine = [one for one in phases if one["protocol"] == row[f"{which}_protocol"]]
        spent = sum(one["seconds"] for one in mine)
        steps = sum(one["end_worker_step"] - one["start_worker_step"] for one in mine)
        row[f"{which}_phase_seconds"] = spent if mine else None
        row[f"{which}_phase_worker_steps_per_second"] = steps / spent if spent else None
    return {column.name: row[column.name] for column in TRIAL_FACTS.columns}


def _whole_run_seconds(row: dict[str, Any], phases: list[dict[str, Any]]) -> float | None:
    if row["state"] != "complete" or row["diverged"]:
        return None
    if not row["stopped_early"] or row["worker_steps"] >= row["total_worker_steps"]:
        return row["training_seconds"]  # type: ignore[no-any-return]
    last = "first_protocol" if row["switch_percent"] == 100 else "second_protocol"
    if not phases or phases[-1]["protocol"] != row[last]:
        return None
    known = [record_fields(PhaseRecord, one) for one in phases]
    return whole_run_seconds(
        row["training_seconds"], known, row["worker_steps"], row["total_worker_steps"]
    )


def record_fields(record: type, row: dict[str, Any]) -> Any:
    return record(**{field.name: row[field.name] for field in fields(record)})


@both_databases
def test_the_view_has_the_columns_that_are_described(database: Database) -> None:
    found = inspect(database.engine).get_columns(TRIAL_FACTS.name)
    assert [column["name"] for column in found] == TRIAL_FACTS.columns.keys()
    if database.engine.dialect.name == "postgresql":  # SQLite knows no types of expressions
        kinds = [column["type"].python_type for column in found]
        described = [column.kind for column in columns_of_record(TrialFacts)]
        described = [str if kind is TrialState else kind for kind in described]
        assert [dict if kind is object else kind for kind in kinds] == described


def test_every_value_of_the_view_is_that_of_the_tables(any_filled: Database) -> None:
    with any_filled.transaction(read_only=True) as connection:
        query = select(WORKLOADS, TRIALS).join_from(TRIALS, WORKLOADS).order_by(TRIALS.c.trial_id)
        trials = [dict(row) for row in connection.execute(query).mappings()]

        def parts(table: Table, trial_id: int) -> list[dict[str, Any]]:
            mine = select(table).where(table.c.trial_id == trial_id).order_by(table.c.position)
            return [dict(row) for row in connection.execute(mine).mappings()]

        wanted = [expected(trial, parts) for trial in trials]
    assert len(wanted) > 20
    found = facts(any_filled)
    for mine, row in zip(found, wanted, strict=True):
        assert mine == {
            name: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            for name, value in row.items()
        }


def test_runs_of_every_kind_were_compared(filled: Database) -> None:
    rows = facts(filled)
    assert {row["kind"] for row in rows} == {"search", "import", "use"}
    assert {row["guard"] for row in rows} == {"off", "quiet", "alarmed", None}
    assert {row["state"] for row in rows} == {"complete", "failed", "running"}
    for column in columns_of_record(TrialFacts):
        missing = [row[column.name] is None for row in rows]
        assert not all(missing), f"no row has a {column.name}"
        assert any(missing) == column.nullable, f"{column.name} is described as nullable, or not"
    assert {row["speculative"] for row in rows} == {True, False}
    for name in ("converged", "diverged", "stopped_early", "time_to_accuracy_is_censored"):
        assert {row[name] for row in rows} == {True, False, None}


def test_every_column_is_documented() -> None:
    assert all(column.meaning for column in columns_of_record(TrialFacts))
