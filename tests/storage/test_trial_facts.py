"""The view of trials: its columns are those that are documented, and each says what it should."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Select, inspect, select
from sqlalchemy.dialects import sqlite

from syncswitch.storage import frames
from syncswitch.storage.columns import TrialFacts
from syncswitch.storage.database.engine import Database
from syncswitch.storage.records.flat import columns
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.base import UtcDateTime
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import TRIALS, WORKLOADS
from tests.storage.conftest import both_databases

COMPUTED = (
    ("workload", "metric", "kind"),
    ("converged_value", "final_value", "target_value"),
    ("paid_seconds", "whole_run_seconds"),
    ("first_phase_seconds", "first_phase_worker_steps_per_second"),
    ("second_phase_seconds", "second_phase_worker_steps_per_second"),
    ("failed_switches", "guard_lost_seconds", "time_to_accuracy_is_censored"),
)
"""What the view works out; all else it passes on."""

NONE, LOST = (None, None), (None, None, None)
RUNS = {
    "failed at once": (
        1, ("generated", "accuracy", "search"), LOST, NONE, NONE, NONE, (0, None, None)
    ),
    "BSP alone, below the target": (
        2, ("generated", "accuracy", "search"), (0.948, 0.948, 0.948963), (100.0, 100.0),
        (100.0, 30.0), NONE, (0, None, True),
    ),
    "switched": (
        6, ("generated", "accuracy", "search"), (0.950658, 0.950658, 0.948963), (55.0, 55.0),
        (25.0, 30.0), (30.0, 75.0), (0, None, False),
    ),
    "under way": (
        16, ("larger", "accuracy", "search"), LOST, NONE, NONE, NONE, (0, None, None)
    ),
    "stopped, from a checkpoint": (
        18, ("digits", "accuracy", "search"), (0.89, 0.9, 0.9), (2.0, 3.0), (2.0, 250.0),
        (1.0, 500.0), (0, None, False),
    ),
    "diverged before it was evaluated": (
        19, ("digits", "accuracy", "search"), (0.89, 0.0, 0.9), (2.0, None), NONE, NONE,
        (0, None, True),
    ),
    "imported": (
        22, ("recorded", "accuracy", "import"), (0.899998, 0.899998, None), (2000.0, 2000.0),
        (1000.0, 4.0), (1000.0, 4.0), (0, None, None),
    ),
    "of a metric of which less is better": (
        30, ("disturbed", "regret", "search"), (-0.950658, -0.950658, -0.948), (55.0, 55.0),
        (25.0, 30.0), (30.0, 75.0), (0, None, False),
    ),
    "cancelled": (
        31, ("larger", "accuracy", "search"), LOST, (70.0, None), NONE, NONE, (0, None, None)
    ),
    "with a policy, sent back by its guard": (
        35, ("generated", "accuracy", "use"), (0.949596, 0.949596, 0.948963), (47.5, 47.5),
        (12.5, 30.0), (35.0, 75.0), (1, 12.5, False),
    ),
}  # fmt: skip
"""By what is special of a run: its `trial_id`, and what the view works out of it."""


@both_databases
def test_the_view_has_the_columns_that_are_described(database: Database) -> None:
    found = inspect(database.engine).get_columns(TRIAL_FACTS.name)
    assert [column["name"] for column in found] == TRIAL_FACTS.columns.keys()
    if database.engine.dialect.name == "postgresql":  # SQLite knows no types of expressions
        kinds = [column["type"].python_type for column in found]
        described = [column.kind for column in columns(TrialFacts)]
        described = [str if kind is TrialState else kind for kind in described]
        assert [dict if kind is object else kind for kind in kinds] == described


def test_the_view_passes_on_the_tables_and_works_out_the_rest(any_filled: Database) -> None:
    with any_filled.transaction(read_only=True) as connection:

        def rows(query: Select[Any]) -> list[dict[str, Any]]:
            return [dict(row) for row in connection.execute(query).mappings()]

        stored = rows(
            select(WORKLOADS, TRIALS).join_from(TRIALS, WORKLOADS).order_by(TRIALS.c.trial_id)
        )
        found = rows(select(TRIAL_FACTS).order_by(TRIAL_FACTS.c.trial_id))
    computed = list(itertools.chain(*COMPUTED))
    for mine, row in zip(found, stored, strict=True):
        assert mine == {name: mine[name] if name in computed else row[name] for name in mine}
    for what, (trial_id, *values) in RUNS.items():
        mine = found[trial_id - 1]
        assert mine["trial_id"] == trial_id
        said = [mine[name] for name in computed]
        assert said == [
            pytest.approx(value, abs=1e-6) if isinstance(value, float) else value
            for value in itertools.chain(*values)
        ], what
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
