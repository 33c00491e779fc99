"""What happened in a run before it was forked: the rows of that are its ancestors'."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CTE, ColumnElement, FromClause, Select, Subquery, func, select

from syncswitch.storage.tables.trials import EVALUATIONS, PHASES, TRIALS, WORKLOADS


def inherited_accuracy_seconds(
    trial_ids: Select[Any], target_accuracy: float | ColumnElement[float]
) -> Subquery:
    """When forks first tested at an accuracy, or above it, before they left their ancestors.

    Selects `trial_id` and `seconds` of those that got there in time. The clock of a fork goes on
    from that of its checkpoint, so these times count from the start of the whole run, as its own
    do. The target may be an expression of the columns of `WORKLOADS`.
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
    """A row for each ancestor of each fork: what up to `end_worker_step` it shares."""
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
    """Where a fork begins: of its checkpoint only the percent of W is known, before rounding."""
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
