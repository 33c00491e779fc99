"""Tables for pandas: trials, evaluations, events, switch points, policies, uses, costs, times.

```
from syncswitch.storage import frames

frames.switch_points("sqlite:///syncswitch.db", workload="digits")
frames.describe("switch points")  # what the columns mean
```

Every function takes an open database or its URL. Names and types of the columns are the same
whatever the rows are, also without any, and on every database: times are in UTC, a measurement
that is missing is NaN, software is JSON text.

Trials are chosen by keywords, in the database: `workload` (name, normal reference, or 8 or more
digits of the fingerprint), `fingerprint`, `study`, `since` and `until` (when they began; with a
time zone); also, except in `switch_points`, by `kinds`, `trial_number`, `state`,
`candidate_percent` and `trial_ids`. Later runs with a policy are trials of the kind `use`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Literal, overload

from sqlalchemy import Select

from syncswitch.storage.database.engine import ROWS_AT_ONCE, Database, opened
from syncswitch.storage.errors import UserError
from syncswitch.storage.queries import run_rows
from syncswitch.storage.queries.columns import (
    FrameColumn,
    columns_of_record,
    columns_of_table,
)
from syncswitch.storage.queries.policies import PolicyVersion, policy_versions
from syncswitch.storage.queries.search_costs import StudyCost, study_costs
from syncswitch.storage.queries.summaries import SwitchPointStatistics, switch_point_statistics
from syncswitch.storage.queries.trial_details import trial_facts
from syncswitch.storage.queries.trial_filter import RunChoice, TrialChoice
from syncswitch.storage.queries.uses import PolicyUseFacts, use_facts
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS

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
"""A table; so the function that makes it is called, too."""

COLUMNS: Mapping[FrameName, tuple[FrameColumn, ...]] = {
    "trials": columns_of_table(TRIAL_FACTS),
    "evaluations": columns_of_record(run_rows.EvaluationFacts),
    "events": columns_of_record(run_rows.EventFacts),
    "switch_points": columns_of_record(SwitchPointStatistics),
    "policies": columns_of_record(PolicyVersion),
    "uses": columns_of_record(PolicyUseFacts),
    "search_costs": columns_of_record(StudyCost),
    "time_to_accuracy": columns_of_record(run_rows.AccuracyTime),
}
"""The columns of each table, by the name of its function."""


def describe(name: FrameName) -> pandas.DataFrame:
    """What the columns of a table mean: name, type in pandas, meaning."""
    import pandas

    rows = [(column.name, column.dtype, column.meaning) for column in COLUMNS[name]]
    frame: pandas.DataFrame = pandas.DataFrame(rows, columns=["column", "dtype", "meaning"])
    return frame


def trials(database: Database | str, **choice: Unpack[TrialChoice]) -> pandas.DataFrame:
    """One row per trial, in the order in which they were added.

    Args:
        database: Open, or its URL.
        **choice: `workload`, `fingerprint`, `study`, `kinds`, `trial_number`, `state`,
            `candidate_percent`, `since`, `until`, `trial_ids` (see the top of this module).

    Raises:
        UserError: A value is impossible, or the database cannot be opened.
    """
    return _whole(database, "trials", trial_facts(choice))


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
    """One row per test of a model, by trial, in the order of the worker-steps.

    The curve of a fork begins where it was forked; `parent_trial_id` in `trials` says from what.

    Args:
        database: Open, or its URL.
        chunk_rows: Yields tables of this many rows instead of one, in bounded memory. The rows are
            all of one moment; without rows there is no table.
        **choice: Which trials, as in `trials`.

    Raises:
        UserError: As in `trials`.
    """
    query = run_rows.evaluations(choice)
    if chunk_rows is None:
        return _whole(database, "evaluations", query)
    if chunk_rows < 1:
        raise UserError(f"chunk_rows is {chunk_rows}; allowed: 1 or more, for example 100000")
    return _chunks(database, "evaluations", query, chunk_rows)


def events(database: Database | str, **choice: Unpack[TrialChoice]) -> pandas.DataFrame:
    """One row per event of a complete run, by trial, in their order.

    Events are what happened to a run (a worker was lost, a straggler detected) and what was decided
    about it (a switch of the protocol, a worker removed), each with its reason.

    Args:
        database: Open, or its URL.
        **choice: Which trials, as in `trials`.

    Raises:
        UserError: As in `trials`.
    """
    return _whole(database, "events", run_rows.events(choice))


def switch_points(
    database: Database | str, *, confidence: float = 0.95, **choice: Unpack[RunChoice]
) -> pandas.DataFrame:
    """One row per switch point of a workload: means over its completed runs, and how sure they are.

    Runs under different conditions (`online`, `switch_mechanism`, `injections`)
    have rows of their own. The time of a run that was stopped is what all of it would have taken.

    Args:
        database: Open, or its URL.
        confidence: Of the intervals, between 0 and 1.
        **choice: `workload`, `fingerprint`, `study`, `since`, `until` (see the top of this
            module). It is the choice of the baselines, too.

    Raises:
        UserError: As in `trials`.
    """
    with opened(database) as read:
        rows = switch_point_statistics(read, confidence=confidence, **choice)
    return frame_of("switch_points", map(astuple, rows))


def policies(
    database: Database | str, *, workload: str | None = None, fingerprint: str | None = None
) -> pandas.DataFrame:
    """One row per version of a policy.

    Args:
        database: Open, or its URL.
        workload: Name, normal reference, or start of the fingerprint (8 digits or more).
        fingerprint: The whole of it.

    Raises:
        UserError: As in `trials`.
    """
    with opened(database) as read:
        rows = policy_versions(read, workload=workload, fingerprint=fingerprint)
    names = [column.name for column in COLUMNS["policies"]]
    return frame_of("policies", ([row[name] for name in names] for row in rows))


def uses(
    database: Database | str, *, workload: str | None = None, fingerprint: str | None = None
) -> pandas.DataFrame:
    """One row per later run with a policy, in the order in which they were recorded.

    Args:
        database: Open, or its URL.
        workload: Name, normal reference, or start of the fingerprint (8 digits or more).
        fingerprint: The whole of it.

    Raises:
        UserError: As in `trials`.
    """
    with opened(database) as read:
        rows = use_facts(read, workload=workload, fingerprint=fingerprint)
    return frame_of("uses", map(astuple, rows))


def search_costs(
    database: Database | str,
    *,
    workload: str | None = None,
    fingerprint: str | None = None,
    study: str | None = None,
) -> pandas.DataFrame:
    """One row per search, in the order in which they were registered.

    Args:
        database: Open, or its URL.
        workload: Name, normal reference, or start of the fingerprint (8 digits or more).
        fingerprint: The whole of it.
        study: Name of the search.

    Raises:
        UserError: As in `trials`.
    """
    with opened(database) as read:
        rows = study_costs(read, workload=workload, fingerprint=fingerprint, study=study)
    return frame_of("search_costs", map(astuple, rows))


def time_to_accuracy(
    database: Database | str, *, target_accuracy: float, **choice: Unpack[TrialChoice]
) -> pandas.DataFrame:
    """One row per completed run: when it first tested at a target of yours, or that it never did.

    `observed_seconds` and `is_censored` are what survival analysis takes; a run that was stopped
    was observed until then.

    Args:
        database: Open, or its URL.
        target_accuracy: A value of the metric, in its own unit.
        **choice: Which trials, as in `trials`.

    Raises:
        UserError: As in `trials`.
    """
    return _whole(database, "time_to_accuracy", run_rows.accuracy_times(choice, target_accuracy))


def frame_of(name: FrameName, rows: Iterable[Iterable[Any]]) -> pandas.DataFrame:
    """Rows of values, in the order of the columns, as a table with the types of its columns."""
    import pandas

    columns = COLUMNS[name]
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    frame: pandas.DataFrame = pandas.DataFrame(
        {
            column.name: pandas.Series(_texts(of_column, column), dtype=column.dtype)
            for column, of_column in zip(columns, values, strict=True)
        }
    )
    return frame


def _texts(values: tuple[Any, ...], column: FrameColumn) -> Iterable[Any]:
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
