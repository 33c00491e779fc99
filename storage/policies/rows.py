"""Timing policies as rows, and back; and the turns that writers take."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, insert, select, update

from syncswitch.storage.errors import PolicyError
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import Evidence, TimingPolicy
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.base import add_rows, columns_of, record_of
from syncswitch.storage.tables.policies import ALIASES, EVIDENCE, POLICIES
from syncswitch.storage.tables.trials import TRIALS

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


def read_policies(
    connection: Connection, query: Select[Any]
) -> list[tuple[Row[Any], TimingPolicy]]:
    """Rows with their records, newest first; times of creation are in UTC."""
    newest_first = query.order_by(
        POLICIES.c.created_at.desc(), POLICIES.c.version.desc(), POLICIES.c.fingerprint
    )
    rows = connection.execute(newest_first).all()
    evidence = _evidence(connection, query) if rows else {}
    return [(row, _policy(row, evidence.get((row.fingerprint, row.version), []))) for row in rows]


def _evidence(connection: Connection, query: Select[Any]) -> dict[tuple[str, int], list[Evidence]]:
    """By fingerprint and version; as plain rows, of which a registry may have 100,000."""
    chosen = query.with_only_columns(POLICIES.c.fingerprint, POLICIES.c.version).subquery()
    columns = columns_of(Evidence, EVIDENCE)
    statement = (
        select(EVIDENCE.c.fingerprint, EVIDENCE.c.version, *columns)
        .join(
            chosen,
            (chosen.c.fingerprint == EVIDENCE.c.fingerprint)
            & (chosen.c.version == EVIDENCE.c.version),
        )
        .order_by(EVIDENCE.c.position)
    )
    found: dict[tuple[str, int], list[Evidence]] = defaultdict(list)
    for fingerprint, version, *values in connection.execute(statement):
        found[fingerprint, version].append(Evidence(*values))
    return found


def _policy(row: Row[Any], evidence: list[Evidence]) -> TimingPolicy:
    return record_of(
        TimingPolicy,
        row,
        evidence=tuple(evidence),
        created_at=row.created_at.isoformat(),
        band=None if row.band is None else Band.of(row.band),
    )


def last_version(connection: Connection, fingerprint: str) -> int:
    """The highest version; 0 where there is none."""
    query = select(func.max(POLICIES.c.version)).where(POLICIES.c.fingerprint == fingerprint)
    return connection.scalar(query) or 0


def add_version(
    connection: Connection, policy: TimingPolicy, imported_at: datetime | None = None
) -> TimingPolicy:
    """Adds the next version of a workload that is locked, and returns it."""
    version = last_version(connection, policy.fingerprint) + 1
    created_at = datetime.fromisoformat(policy.created_at).astimezone(timezone.utc)
    content = {**asdict(policy), "version": version, "created_at": created_at}
    evidence = content.pop("evidence")
    connection.execute(insert(POLICIES).values(imported_at=imported_at, **content))
    add_rows(
        connection,
        EVIDENCE,
        ({"position": position, **run} for position, run in enumerate(evidence)),
        fingerprint=policy.fingerprint,
        version=version,
    )
    return replace(policy, version=version, created_at=created_at.isoformat())


def point(connection: Connection, fingerprint: str, alias: str, version: int) -> None:
    """Points an alias at a version that is there."""
    if pointed_at(connection, fingerprint, alias) is None:
        values = {"fingerprint": fingerprint, "alias": alias, "version": version}
        connection.execute(insert(ALIASES).values(values))
    else:
        connection.execute(update(ALIASES).where(_is(fingerprint, alias)).values(version=version))


def pointed_at(connection: Connection, fingerprint: str, alias: str) -> int | None:
    """The version that an alias points at; None where there is no such alias."""
    query = select(ALIASES.c.version).where(_is(fingerprint, alias))
    return connection.scalar(query)


def _is(fingerprint: str, alias: str) -> ColumnElement[bool]:
    return (ALIASES.c.fingerprint == fingerprint) & (ALIASES.c.alias == alias)


def check_current(connection: Connection, fingerprint: str, version: int) -> None:
    """Raises PolicyError where `current` is not this version."""
    current = pointed_at(connection, fingerprint, CURRENT)
    if current != version:
        at = "nothing" if current is None else f"version {current}"
        raise PolicyError(
            f"{CURRENT} of workload {fingerprint[:12]} is {at}, not version {version} any more; see"
            f" `syncswitch-search policy list`"
        )


def read_evidence_trials(
    connection: Connection, fingerprint: str, version: int
) -> list[EvidenceTrial]:
    """What the database still has of the trials that a version rests on, in their order."""
    measured = (
        TRIALS.c.state == TrialState.COMPLETE,
        TRIALS.c.switch_percent == EVIDENCE.c.switch_percent,
        TRIALS.c.replicate == EVIDENCE.c.replicate,
        TRIALS.c.converged_accuracy == EVIDENCE.c.converged_accuracy,
        TRIALS.c.diverged == EVIDENCE.c.diverged,
        func.coalesce(TRIALS.c.training_seconds, 0.0) == EVIDENCE.c.training_seconds,
    )
    query = (
        select(TRIALS.c.trial_id, and_(*measured))
        .select_from(EVIDENCE)
        .outerjoin(
            TRIALS,
            (TRIALS.c.study == EVIDENCE.c.study)
            & (TRIALS.c.trial_number == EVIDENCE.c.trial_number)
            & (TRIALS.c.fingerprint == EVIDENCE.c.fingerprint),
        )
        .where(EVIDENCE.c.fingerprint == fingerprint, EVIDENCE.c.version == version)
        .order_by(EVIDENCE.c.position)
    )
    return [
        EvidenceTrial(trial_id, agrees=bool(agrees))
        for trial_id, agrees in connection.execute(query)
    ]
