"""Timing policies as rows, and back; and the turns that writers take."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from syncswitch.storage.errors import PolicyError
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import Evidence, TimingPolicy
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.base import columns_of, record_of
from syncswitch.storage.tables.policies import EvidenceRow, PolicyAliasRow, PolicyRow
from syncswitch.storage.tables.trials import TrialRow

CURRENT = "current"
"""The alias that `publish` moves to each new version."""


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy as the registry keeps it.

    Attributes:
        policy: The policy.
        aliases: That point at it, in alphabetical order.
        imported_at: ISO 8601, UTC; None where a search in this database published it.
        identity: The workload that it was found for.
    """

    policy: TimingPolicy
    aliases: tuple[str, ...]
    imported_at: str | None
    identity: WorkloadIdentity


@dataclass(frozen=True, slots=True)
class EvidenceTrial:
    """What the database still has of a trial that a policy rests on.

    Attributes:
        trial_id: Its number; None where it is not in this database.
        agrees: Whether it is complete and measured what the policy says.
    """

    trial_id: int | None
    agrees: bool


def read_policies(session: Session, query: Select[Any]) -> list[tuple[PolicyRow, TimingPolicy]]:
    """Rows with their records, newest first; times of creation are in UTC."""
    newest_first = query.order_by(
        PolicyRow.created_at.desc(), PolicyRow.version.desc(), PolicyRow.fingerprint
    )
    rows = session.scalars(newest_first).all()
    evidence = _evidence(session, query) if rows else {}
    return [(row, _policy(row, evidence.get((row.fingerprint, row.version), []))) for row in rows]


def _evidence(session: Session, query: Select[Any]) -> dict[tuple[str, int], list[Evidence]]:
    """By fingerprint and version; as plain rows, of which a registry may have 100,000."""
    chosen = query.with_only_columns(PolicyRow.fingerprint, PolicyRow.version).subquery()
    columns = columns_of(Evidence, EvidenceRow)
    statement = (
        select(EvidenceRow.fingerprint, EvidenceRow.version, *columns)
        .join(
            chosen,
            (chosen.c.fingerprint == EvidenceRow.fingerprint)
            & (chosen.c.version == EvidenceRow.version),
        )
        .order_by(EvidenceRow.position)
    )
    found: dict[tuple[str, int], list[Evidence]] = defaultdict(list)
    for fingerprint, version, *values in session.execute(statement):
        found[fingerprint, version].append(Evidence(*values))
    return found


def _policy(row: PolicyRow, evidence: list[Evidence]) -> TimingPolicy:
    return record_of(
        TimingPolicy,
        row,
        evidence=tuple(evidence),
        created_at=row.created_at.isoformat(),
        band=None if row.band is None else Band.of(row.band),
    )


def last_version(session: Session, fingerprint: str) -> int:
    """The highest version; 0 where there is none."""
    query = select(func.max(PolicyRow.version)).where(PolicyRow.fingerprint == fingerprint)
    return session.scalar(query) or 0


def add_version(
    session: Session, policy: TimingPolicy, imported_at: datetime | None = None
) -> TimingPolicy:
    """Adds the next version of a workload that is locked, and returns it."""
    content: dict[str, Any] = {
        **asdict(policy),
        "version": last_version(session, policy.fingerprint) + 1,
        "created_at": datetime.fromisoformat(policy.created_at).astimezone(timezone.utc),
        "evidence": [
            EvidenceRow(position=position, **asdict(evidence))
            for position, evidence in enumerate(policy.evidence)
        ],
    }
    row = PolicyRow(imported_at=imported_at, **content)
    session.add(row)
    session.flush()  # aliases refer to this row
    return _policy(row, list(policy.evidence))


def point(session: Session, fingerprint: str, alias: str, version: int) -> None:
    """Points an alias at a version that is there."""
    session.merge(PolicyAliasRow(fingerprint=fingerprint, alias=alias, version=version))


def check_current(session: Session, fingerprint: str, version: int) -> None:
    """Raises PolicyError where `current` is not this version."""
    row = session.get(PolicyAliasRow, (fingerprint, CURRENT))
    if row is None or row.version != version:
        at = "nothing" if row is None else f"version {row.version}"
        raise PolicyError(
            f"{CURRENT} of workload {fingerprint[:12]} is {at}, not version {version} any more; see"
            f" `syncswitch-search policy list`"
        )


def read_evidence_trials(session: Session, fingerprint: str, version: int) -> list[EvidenceTrial]:
    """What the database still has of the trials that a version rests on, in their order."""
    query = (
        select(EvidenceRow, TrialRow)
        .outerjoin(
            TrialRow,
            (TrialRow.study == EvidenceRow.study)
            & (TrialRow.trial_number == EvidenceRow.trial_number)
            & (TrialRow.fingerprint == EvidenceRow.fingerprint),
        )
        .where(EvidenceRow.fingerprint == fingerprint, EvidenceRow.version == version)
        .order_by(EvidenceRow.position)
    )
    return [_evidence_trial(stated, trial) for stated, trial in session.execute(query)]


def _evidence_trial(stated: EvidenceRow, trial: TrialRow | None) -> EvidenceTrial:
    if trial is None:
        return EvidenceTrial(None, agrees=False)
    agrees = (
        trial.state == TrialState.COMPLETE
        and trial.switch_percent == stated.switch_percent
        and trial.replicate == stated.replicate
        and trial.converged_accuracy == stated.converged_accuracy
        and trial.diverged == stated.diverged
        and (trial.training_seconds or 0.0) == stated.training_seconds
    )
    return EvidenceTrial(trial.trial_id, agrees)
