"""Converts evaluations to rows and back; they are most of a database, so both use plain SQL."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Subquery,
    func,
    select,
    update,
)

from syncswitch.storage.records.trial import Evaluation, TrialState
from syncswitch.storage.tables.base import columns_of
from syncswitch.storage.tables.trials import EVALUATIONS, PHASES, TRIALS, WORKLOADS

_INSERT = (
    f"INSERT INTO {EVALUATIONS.name}"
    " (trial_id, worker_step, elapsed_seconds, accuracy, training_loss, further) "
)
_ROW_BY_ROW = _INSERT + "VALUES (?, ?, ?, ?, ?, ?)"
# A server takes whole columns five times as fast as rows.
_BY_COLUMNS = _INSERT + (
    "SELECT * FROM unnest(%s::integer[], %s::bigint[], %s::double precision[],"
    " %s::double precision[], %s::double precision[], %s::json[])"
)

_COLUMNS = columns_of(Evaluation, EVALUATIONS)


def add_evaluations(
    connection: Connection, curves: Iterable[tuple[int, Iterable[Evaluation]]]
) -> None:
    """Adds evaluations to trials, given by `trial_id`."""
    rows = [
        (
            trial_id,
            int(evaluation.worker_step),
            float(evaluation.elapsed_seconds),
            float(evaluation.accuracy),
            # SQLite has no NaN, and stores null instead.
            None if math.isnan(evaluation.training_loss) else float(evaluation.training_loss),
            json.dumps(dict(evaluation.further)) if evaluation.further else None,
        )
        for trial_id, evaluations in curves
        for evaluation in evaluations
    ]
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(_ROW_BY_ROW, rows)
    else:
        columns = tuple(list(column) for column in zip(*rows, strict=True))
        connection.exec_driver_sql(_BY_COLUMNS, columns)


def read_evaluations(connection: Connection, *conditions: ColumnElement[bool]) -> list[Evaluation]:
    """Returns the evaluations of the chosen trial in the order of their worker-steps."""
    query = (
        select(*_COLUMNS)
        .join(TRIALS, TRIALS.c.trial_id == EVALUATIONS.c.trial_id)
        .where(*conditions)
        .order_by(EVALUATIONS.c.worker_step)
    )
    return [_evaluation(*values) for values in connection.execute(query)]


def read_curves(
    connection: Connection, fingerprint: str, study: str | None = None, *, of_uses: bool = False
) -> dict[int, tuple[Evaluation, ...]]:
    """Returns the evaluations of a workload's complete trials, or of its uses, by `trial_id`."""
    query = (
        select(TRIALS.c.trial_id, *_COLUMNS)
        .outerjoin(EVALUATIONS, EVALUATIONS.c.trial_id == TRIALS.c.trial_id)
        .where(
            TRIALS.c.fingerprint == fingerprint,
            TRIALS.c.state == TrialState.COMPLETE,
            TRIALS.c.use_id.is_not(None) if of_uses else TRIALS.c.use_id.is_(None),
        )
        .order_by(TRIALS.c.trial_id, EVALUATIONS.c.worker_step)
    )
    if study is not None:
        query = query.where(TRIALS.c.study == study)
    return {
        trial_id: tuple(
            _evaluation(*values)
            for _, *values in rows
            if values[0] is not None  # as in the row of a trial without evaluations
        )
        for trial_id, rows in groupby(connection.execute(query), key=itemgetter(0))
    }


def record_target(
    connection: Connection, chosen: ColumnElement[bool], target_accuracy: float
) -> None:
    """Records the target accuracy of complete runs, and when each of them first reached it.

    A fork may have reached it before it was forked.
    """
    own_seconds = (
        select(func.min(EVALUATIONS.c.elapsed_seconds))
        .where(
            EVALUATIONS.c.trial_id == TRIALS.c.trial_id, EVALUATIONS.c.accuracy >= target_accuracy
        )
        .scalar_subquery()
    )
    inherited = inherited_accuracy_seconds(select(TRIALS.c.trial_id).where(chosen), target_accuracy)
    inherited_seconds = (
        select(inherited.c.seconds)
        .where(inherited.c.trial_id == TRIALS.c.trial_id)
        .scalar_subquery()
    )
    first_seconds = func.coalesce(inherited_seconds, own_seconds)
    connection.execute(
        update(TRIALS)
        .where(
            chosen,
            TRIALS.c.state == TrialState.COMPLETE,
            TRIALS.c.target_accuracy.is_distinct_from(target_accuracy),
        )
        .values(target_accuracy=target_accuracy, time_to_accuracy_seconds=first_seconds)
    )


def _evaluation(
    worker_step: int,
    elapsed_seconds: float,
    accuracy: float,
    training_loss: float | None,
    further: dict[str, float] | None,
) -> Evaluation:
    loss = math.nan if training_loss is None else training_loss
    values = tuple((further or {}).items())
    return Evaluation(worker_step, elapsed_seconds, accuracy, loss, values)


def inherited_accuracy_seconds(
    trial_ids: Select[Any], target_accuracy: float | ColumnElement[float]
) -> Subquery:
    """Selects when forks first reached an accuracy in a test before they left their ancestors.

    The columns are `trial_id` and `seconds`; forks that did not reach it are left out. The clock of
    a fork goes on from that of its checkpoint, so these times count from the start of the whole
    run, as its own do. The target may be an expression of the columns of `WORKLOADS`.
    """
    prefix = _prefixes(trial_ids).c
    query = select(prefix.trial_id, func.min(EVALUATIONS.c.elapsed_seconds).label("seconds")).join(
        EVALUATIONS, EVALUATIONS.c.trial_id == prefix.ancestor_id
    )
    if isinstance(target_accuracy, ColumnElement):
        query = query.join(TRIALS, TRIALS.c.trial_id == prefix.ancestor_id).join(
            WORKLOADS, WORKLOADS.c.fingerprint == TRIALS.c.fingerprint
        )
    reached = EVALUATIONS.c.accuracy >= target_accuracy
    return (
        query.where(EVALUATIONS.c.worker_step <= prefix.end_worker_step, reached)
        .group_by(prefix.trial_id)
        .subquery()
    )


def _prefixes(trial_ids: Select[Any]) -> CTE:
    """Selects the ancestors of each fork, each with the last worker-step that they share."""
    fork, ancestor = TRIALS.alias(), TRIALS.alias()
    first = (
        select(
            fork.c.trial_id,
            fork.c.parent_trial_id.label("ancestor_id"),
            _fork_worker_step(fork).label("end_worker_step"),
        )
        .where(fork.c.parent_trial_id.is_not(None), fork.c.trial_id.in_(trial_ids.correlate(None)))
        .cte("prefixes", recursive=True)
    )
    return first.union_all(
        select(first.c.trial_id, ancestor.c.parent_trial_id, _fork_worker_step(ancestor))
        .join(first, ancestor.c.trial_id == first.c.ancestor_id)
        .where(ancestor.c.parent_trial_id.is_not(None))
    )


def _fork_worker_step(fork: FromClause) -> Any:
    """Selects where a fork begins; only the percent of its checkpoint is stored, not rounded."""
    begins = (
        select(func.min(PHASES.c.start_worker_step))
        .where(PHASES.c.trial_id == fork.c.trial_id)
        .scalar_subquery()
    )
    stated = (
        select(fork.c.fork_percent / 100 * WORKLOADS.c.total_worker_steps)
        .where(WORKLOADS.c.fingerprint == fork.c.fingerprint)
        .scalar_subquery()
    )
    return func.coalesce(begins, stated)
