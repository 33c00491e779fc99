"""Tables for pandas: trials, evaluations, events, switch points, policies, uses, costs, times."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from sqlalchemy import Select

from syncswitch.storage.columns import TrialFacts
from syncswitch.storage.database.engine import ROWS_AT_ONCE, Database, opened
from syncswitch.storage.errors import UserError
from syncswitch.storage.queries import run_rows
from syncswitch.storage.queries.policies import (
    PolicyUseFacts,
    PolicyVersion,
    policy_versions,
    use_facts,
)
from syncswitch.storage.queries.search_costs import StudyCost, study_costs
from syncswitch.storage.queries.summaries import SwitchPointStatistics, switch_point_statistics
from syncswitch.storage.records.flat import Column, columns, values_of
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.choice import JobChoice, RunChoice, SearchChoice, TrialChoice

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack

__all__ = [
    "COLUMNS",
    "FrameName",
    "describe",
    "evaluations",
    "events",
    "frame_of",
    "policies",
    "search_costs",
    "switch_points",
    "time_to_accuracy",
    "trials",
    "uses",
]

FrameName = Literal[
    "trials",
    "evaluations",
    "events",
    "switch_points",
    "policies",
    "uses",
    "search_costs",
    "time_to_accuracy",
]
"""The name of a table, and of the function that makes it."""

# The types of a column without missing values, and of one with them. A missing measurement is NaN.
# JSON is text in a frame, so that it can be grouped, compared and saved.
_DTYPES = {
    bool: ("bool", "boolean"),
    int: ("int64", "Int64"),
    float: ("float64", "float64"),
    str: ("string", "string"),
    TrialState: ("string", "string"),
    dict: ("string", "string"),
    datetime: ("datetime64[us, UTC]", "datetime64[us, UTC]"),
}

COLUMNS: Mapping[FrameName, tuple[Column, ...]] = {
    "trials": tuple(columns(TrialFacts)),
    "evaluations": run_rows.columns_of(run_rows.EvaluationFacts),
    "events": run_rows.columns_of(run_rows.EventFacts),
    "switch_points": tuple(columns(SwitchPointStatistics)),
    "policies": tuple(columns(PolicyVersion)),
    "uses": tuple(columns(PolicyUseFacts)),
    "search_costs": tuple(columns(StudyCost)),
    "time_to_accuracy": run_rows.columns_of(run_rows.AccuracyTime),
}
"""The columns of each table, by the name of its function."""


def dtype_of(column: Column) -> str:
    """The type of a column in pandas, whatever the rows are."""
    return _DTYPES[column.kind][column.nullable]


def describe(name: FrameName) -> pandas.DataFrame:
    """Returns the columns of a table: name, type in pandas, meaning."""
    import pandas

    rows = [(column.name, dtype_of(column), column.meaning) for column in COLUMNS[name]]
    frame: pandas.DataFrame = pandas.DataFrame(rows, columns=["column", "dtype", "meaning"])
    return frame


def trials(database: Database | str, **choice: Unpack[TrialChoice]) -> pandas.DataFrame:
    """Returns one row per trial, in the order in which they were added."""
    return _whole(database, "trials", run_rows.trials(choice))


@overload
def evaluations(
    database: Database | str, *, chunk_rows: None = None, **choice: Unpack[TrialChoice]
) -> pandas.DataFrame: ...


@overload
def evaluations(
    database: Database | str, *, chunk_rows: int, **choice: Unpack[TrialChoice]
) -> Iterator[pandas.DataFrame]: ...


def evaluations(
    database: Database | str, *, chunk_rows: int | None = None, **choice: Unpack[TrialChoice]
) -> pandas.DataFrame | Iterator[pandas.DataFrame]:
    """Returns one row per test of a model, by trial, in the order of the worker-steps.

    The curve of a fork begins where it was forked; `parent_trial_id` in `trials` names its parent.

    Args:
        database: The open database, or its URL.
        chunk_rows: Number of rows per table; instead of one table it yields several, in bounded
            memory. The rows are all of the same moment; without rows there is no table.
        **choice: The trials, as in `trials`.
    """
    query = run_rows.evaluations(choice)
    if chunk_rows is None:
        return _whole(database, "evaluations", query)
    if chunk_rows < 1:
        raise UserError(
            f"chunk_rows is {chunk_rows}; allowed: 1 or more, for example 100000",
            code="parameter-invalid",
        )
    return _chunks(database, "evaluations", query, chunk_rows)


def events(database: Database | str, **choice: Unpack[TrialChoice]) -> pandas.DataFrame:
    """Returns one row per event of a complete run, by trial, in their order.

    Events are incidents of a run (a worker was lost, a straggler detected) and decisions about it
    (a switch of the protocol, a worker removed), each with its reason.
    """
    return _whole(database, "events", run_rows.events(choice))


def switch_points(
    database: Database | str, *, confidence: float = 0.95, **choice: Unpack[RunChoice]
) -> pandas.DataFrame:
    """Returns the means of each switch point over its completed runs, with confidence intervals.

    Runs under different conditions (`online`, `switch_mechanism`, `injections`) have rows of their
    own. A run that was stopped counts with the estimated time of the whole run.

    Args:
        database: The open database, or its URL.
        confidence: Confidence of the intervals, between 0 and 1.
        **choice: `workload`, `fingerprint`, `study`, `since`, `until` (see the top of this
            module); the choice also applies to the baselines.
    """
    return _listed(
        database, "switch_points", switch_point_statistics, confidence=confidence, **choice
    )


def policies(database: Database | str, **choice: Unpack[JobChoice]) -> pandas.DataFrame:
    """Returns one row per version of a policy."""
    return _listed(database, "policies", policy_versions, **choice)


def uses(database: Database | str, **choice: Unpack[JobChoice]) -> pandas.DataFrame:
    """Returns one row per later run with a policy, in the order of their recording."""
    return _listed(database, "uses", use_facts, **choice)


def search_costs(database: Database | str, **choice: Unpack[SearchChoice]) -> pandas.DataFrame:
    """Returns one row per search, in the order of their registration."""
    return _listed(database, "search_costs", study_costs, **choice)


def time_to_accuracy(
    database: Database | str, *, target_accuracy: float, **choice: Unpack[TrialChoice]
) -> pandas.DataFrame:
    """Returns when each completed run first reached a target of yours in a test, if ever.

    `observed_seconds` and `is_censored` are the input of survival analysis; a run that was stopped
    was observed until then.

    Args:
        database: The open database, or its URL.
        target_accuracy: A value of the metric, in its own unit.
        **choice: The trials, as in `trials`.
    """
    return _whole(database, "time_to_accuracy", run_rows.accuracy_times(choice, target_accuracy))


def frame_of(name: FrameName, rows: Iterable[Iterable[Any]]) -> pandas.DataFrame:
    """Makes a table of rows, whose values are in the order of its columns."""
    import pandas

    described = COLUMNS[name]
    values = list(zip(*rows, strict=True)) or [()] * len(described)
    frame: pandas.DataFrame = pandas.DataFrame(
        {
            column.name: pandas.Series(_texts(of_column, column), dtype=dtype_of(column))
            for column, of_column in zip(described, values, strict=True)
        }
    )
    return frame


def _listed(
    database: Database | str, name: FrameName, find: Callable[..., list[Any]], **choice: Any
) -> pandas.DataFrame:
    with opened(database) as read:
        rows = find(read, **choice)
    # Unlike `astuple`, this copies nothing.
    return frame_of(name, (list(values_of(row)) for row in rows))


def _texts(values: tuple[Any, ...], column: Column) -> Iterable[Any]:
    if column.kind is not dict:
        return values
    return [None if value is None else json.dumps(value, sort_keys=True) for value in values]


def _whole(database: Database | str, name: FrameName, query: Select[Any]) -> pandas.DataFrame:
    import pandas

    chunks = list(_chunks(database, name, query, ROWS_AT_ONCE))
    return pandas.concat(chunks, ignore_index=True) if chunks else frame_of(name, ())


def _chunks(
    database: Database | str, name: FrameName, query: Select[Any], rows: int
) -> Iterator[pandas.DataFrame]:
    with opened(database) as read:
        for block in read.row_blocks(query, rows):
            yield frame_of(name, block)
