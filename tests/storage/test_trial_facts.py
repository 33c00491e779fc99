"""The view of trials: its columns are those that are documented, and each says what it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Select, Table, inspect, select
from sqlalchemy.dialects import sqlite

from syncswitch.storage import frames
from syncswitch.storage.columns import TrialFacts
from syncswitch.storage.database.engine import Database
from syncswitch.storage.metrics import whole_run_seconds
from syncswitch.storage.records.flat import columns
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import PhaseRecord, TrialState
from syncswitch.storage.tables.base import UtcDateTime
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import FAILED_SWITCHES, PHASES, TRIALS, WORKLOADS
from tests.storage.conftest import both_databases
from tests.storage.filled import REGRET

Parts = Callable[[Table, int], list[dict[str, Any]]]


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
        "whole_run_seconds": whole_seconds(row, phases),
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


def whole_seconds(row: dict[str, Any], phases: list[dict[str, Any]]) -> float | None:
    if row["state"] != "complete" or row["diverged"]:
        return None
    if not row["stopped_early"] or row["worker_steps"] >= row["total_worker_steps"]:
        return row["training_seconds"]  # type: ignore[no-any-return]
    last = "first_protocol" if row["switch_percent"] == 100 else "second_protocol"
    if not phases or phases[-1]["protocol"] != row[last]:
        return None
    names = [field.name for field in fields(PhaseRecord)]
    known = [PhaseRecord(**{name: one[name] for name in names}) for one in phases]
    return whole_run_seconds(
        row["training_seconds"], known, row["worker_steps"], row["total_worker_steps"]
    )


@both_databases
def test_the_view_has_the_columns_that_are_described(database: Database) -> None:
    found = inspect(database.engine).get_columns(TRIAL_FACTS.name)
    assert [column["name"] for column in found] == TRIAL_FACTS.columns.keys()
    if database.engine.dialect.name == "postgresql":  # SQLite knows no types of expressions
        kinds = [column["type"].python_type for column in found]
        described = [column.kind for column in columns(TrialFacts)]
        described = [str if kind is TrialState else kind for kind in described]
        assert [dict if kind is object else kind for kind in kinds] == described


def test_every_value_of_the_view_is_that_of_the_tables(any_filled: Database) -> None:
    with any_filled.transaction(read_only=True) as connection:

        def rows(query: Select[Any]) -> list[dict[str, Any]]:
            return [dict(row) for row in connection.execute(query).mappings()]

        def parts(table: Table, trial_id: int) -> list[dict[str, Any]]:
            return rows(
                select(table).where(table.c.trial_id == trial_id).order_by(table.c.position)
            )

        trials = rows(
            select(WORKLOADS, TRIALS).join_from(TRIALS, WORKLOADS).order_by(TRIALS.c.trial_id)
        )
        wanted = [expected(trial, parts) for trial in trials]
        found = rows(select(TRIAL_FACTS).order_by(TRIAL_FACTS.c.trial_id))
    assert len(wanted) > 20
    for mine, row in zip(found, wanted, strict=True):
        assert mine == {
            name: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            for name, value in row.items()
        }
    # Runs of every kind were among them.
    for name, values in (
        ("kind", {"search", "import", "use"}),
        ("guard", {"off", "quiet", "alarmed", None}),
        ("state", {"complete", "failed", "running"}),
        ("speculative", {True, False}),
        ("converged", {True, False, None}),
        ("stopped_early", {True, False, None}),
        ("time_to_accuracy_is_censored", {True, False, None}),
    ):
        assert {row[name] for row in found} == values
    for column in columns(TrialFacts):
        missing = [row[column.name] is None for row in found]
        assert not all(missing), f"no row has a {column.name}"
        assert any(missing) == column.nullable, f"{column.name} is described as nullable, or not"
        assert column.meaning


class Record:
    runs: Annotated[int, "how many"]
    seed: Annotated[int | None, "of them"]
    mean: Annotated[float | None, "of them"]
    is_done: Annotated[bool | None, "or not"]
    failure: Annotated[str | None, "reason"]
    software: Annotated[dict[str, str], "versions"]
    at: Annotated[datetime | None, "UTC"]


def test_the_annotations_of_a_record_are_its_columns() -> None:
    expected = [
        ("runs", int, False, "how many", "int64"),
        ("seed", int, True, "of them", "Int64"),  # a float would round it
        ("mean", float, True, "of them", "float64"),
        ("is_done", bool, True, "or not", "boolean"),  # with three answers
        ("failure", str, True, "reason", "string"),
        ("software", dict, False, "versions", "string"),
        ("at", datetime, True, "UTC", "datetime64[us, UTC]"),
    ]
    assert [
        (one.name, one.kind, one.nullable, one.meaning, frames.dtype_of(one))
        for one in columns(Record)
    ] == expected


zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(
    min_value=datetime(1970, 1, 3), max_value=datetime(2200, 1, 1), timezones=zones
)


@given(moment=moments)
def test_a_moment_survives_databases_with_and_without_time_zones(moment: datetime) -> None:
    kind, dialect = UtcDateTime(), sqlite.dialect()
    stored = kind.process_bind_param(moment, dialect)
    for answer in (stored.replace(tzinfo=None), moment):
        read = kind.process_result_value(answer, dialect)
        assert read == moment
        assert read.utcoffset() == timedelta(0)
    with pytest.raises(ValueError, match="without a time zone"):
        kind.process_bind_param(moment.replace(tzinfo=None), dialect)
