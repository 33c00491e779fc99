"""Rows that no sound database has, as queries that select them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ForeignKeyConstraint, Select, Table, and_, exists, func, or_, select

from syncswitch.storage.tables.base import Base
from syncswitch.storage.tables.policies import EvidenceRow, PolicyAliasRow, PolicyRow
from syncswitch.storage.tables.trials import (
    CheckpointRow,
    EvaluationRow,
    EventRow,
    PhaseRow,
    TrialRow,
    WorkloadRow,
)

RESTORE = "restore them from a copy of the database"


@dataclass(frozen=True, slots=True)
class Rule:
    """Rows that should not be there.

    Attributes:
        kind: Of what is looked at, for example `alias`.
        query: Selects them.
        what: What they are, in the plural.
        example: Names one of them, from the columns of the query.
        fix: What to do.
    """

    kind: str
    query: Select[Any]
    what: str
    example: str
    fix: str


def rules() -> Iterator[Rule]:
    """All rules."""
    for table in Base.metadata.sorted_tables:
        if table is not PolicyAliasRow.__table__:  # has a rule of its own
            for reference in table.foreign_key_constraints:
                yield _reference(table, reference)
    yield _alias()
    yield _versions()
    yield _evidence()
    yield from _trials()
    yield _phases()
    yield from _events()


def _select(*columns: Any) -> Select[Any]:
    return select(*columns)


def _reference(table: Table, reference: ForeignKeyConstraint) -> Rule:
    """SQLite heeds references only where a program asks it to; a server may have been told not."""
    target = reference.referred_table.alias("target")
    pairs = [(key.parent, target.columns[key.column.name]) for key in reference.elements]
    is_known = and_(*(column.is_not(None) for column, _ in pairs))
    is_there = exists().where(*(column == other for column, other in pairs))
    keys = list(table.primary_key)
    return Rule(
        "reference",
        _select(*keys).where(is_known, ~is_there),
        f"rows of {table.name} that refer to a row of {reference.referred_table.name} that is gone",
        " ".join(f"{key.name} {{{key.name}}}" for key in keys),
        f"{RESTORE}, or delete these",
    )


def _alias() -> Rule:
    is_there = exists().where(
        PolicyRow.fingerprint == PolicyAliasRow.fingerprint,
        PolicyRow.version == PolicyAliasRow.version,
    )
    return Rule(
        "alias",
        _select(PolicyAliasRow.fingerprint, PolicyAliasRow.alias, PolicyAliasRow.version).where(
            ~is_there
        ),
        "aliases that point at no version",
        "{alias} of {fingerprint:.12} at {version}",
        "point them at another version with `syncswitch-search policy alias`",
    )


def _versions() -> Rule:
    last = func.max(PolicyRow.version)
    return Rule(
        "versions",
        _select(PolicyRow.fingerprint, last.label("last"))
        .group_by(PolicyRow.fingerprint)
        .having(last != func.count()),
        "workloads whose versions have gaps",
        "{fingerprint:.12} up to {last}",
        RESTORE,
    )


def _evidence() -> Rule:
    """A policy from another database may rest on a search that has the same name there."""
    compared = (
        "fingerprint",
        "switch_percent",
        "replicate",
        "converged_accuracy",
        "diverged",
        "training_seconds",
    )
    differs = or_(
        TrialRow.trial_id.is_(None),
        TrialRow.state != "complete",
        *(
            getattr(TrialRow, name).is_distinct_from(getattr(EvidenceRow, name))
            for name in compared
        ),
    )
    is_its_policy = and_(
        PolicyRow.fingerprint == EvidenceRow.fingerprint, PolicyRow.version == EvidenceRow.version
    )
    is_its_trial = and_(
        TrialRow.study == EvidenceRow.study, TrialRow.trial_number == EvidenceRow.trial_number
    )
    columns = ("study", "trial_number", "fingerprint", "version")
    return Rule(
        "evidence",
        _select(*(getattr(EvidenceRow, name) for name in columns))
        .join(PolicyRow, is_its_policy)
        .outerjoin(TrialRow, is_its_trial)
        .where(PolicyRow.imported_at.is_(None), differs),
        "runs that are gone, or differ from what the policy says that rests on them",
        "run {trial_number} of {study} (version {version} of {fingerprint:.12})",
        f"{RESTORE}; the policies stand as they were published",
    )


def _trials() -> Iterator[Rule]:
    has_evaluations = exists().where(EvaluationRow.trial_id == TrialRow.trial_id)
    has_phases = exists().where(PhaseRow.trial_id == TrialRow.trial_id)
    has_checkpoints = exists().where(CheckpointRow.trial_id == TrialRow.trial_id)
    has_events = exists().where(EventRow.trial_id == TrialRow.trial_id)
    goes_beyond = exists().where(
        EvaluationRow.trial_id == TrialRow.trial_id,
        EvaluationRow.worker_step > TrialRow.worker_steps,
    )
    for what, condition in (
        (
            "complete runs without an evaluation, though they did not diverge",
            (TrialRow.state == "complete") & TrialRow.diverged.is_(False) & ~has_evaluations,
        ),
        (
            "runs that are not complete, yet have evaluations, phases, checkpoints or events",
            (TrialRow.state != "complete")
            & (has_evaluations | has_phases | has_checkpoints | has_events),
        ),
        ("runs with evaluations after their last worker-step", goes_beyond),
    ):
        origin = func.coalesce(TrialRow.study, TrialRow.source).label("origin")
        query = _select(TrialRow.trial_id, origin).where(condition)
        yield Rule("trial", query, what, "trial_id {trial_id} of {origin}", RESTORE)


def _phases() -> Rule:
    in_order: dict[str, Any] = {
        "partition_by": PhaseRow.trial_id,
        "order_by": PhaseRow.position,
    }
    phase = select(
        PhaseRow.trial_id,
        PhaseRow.position,
        PhaseRow.start_worker_step,
        (func.row_number().over(**in_order) - 1).label("place"),
        func.lag(PhaseRow.end_worker_step).over(**in_order).label("end_before"),
    ).subquery()
    is_apart = or_(
        phase.c.position != phase.c.place, phase.c.start_worker_step != phase.c.end_before
    )
    return Rule(
        "phases",
        _select(phase.c.trial_id, phase.c.position).where(is_apart),
        "phases that do not begin where the one before ends",
        "phase {position} of trial_id {trial_id}",
        RESTORE,
    )


def _events() -> Iterator[Rule]:
    place = func.row_number().over(partition_by=EventRow.trial_id, order_by=EventRow.position) - 1
    event = select(EventRow.trial_id, EventRow.position, place.label("place")).subquery()
    example = "event {position} of trial_id {trial_id}"
    yield Rule(
        "events",
        _select(event.c.trial_id, event.c.position).where(event.c.position != event.c.place),
        "events before which others are missing",
        example,
        RESTORE,
    )
    yield Rule(
        "events",
        _select(EventRow.trial_id, EventRow.position)
        .join(TrialRow, TrialRow.trial_id == EventRow.trial_id)
        .join(WorkloadRow, WorkloadRow.fingerprint == TrialRow.fingerprint)
        .where(EventRow.worker >= WorkloadRow.workers),
        "events of workers that the cluster does not have",
        example,
        RESTORE,
    )
