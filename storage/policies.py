"""The policy registry: immutable versions, and aliases that point at them."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, selectinload

from syncswitch.storage.engine import Database
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.models import EvidenceRow, PolicyAliasRow, PolicyRow, WorkloadRow
from syncswitch.storage.policy_file import policy_to_dict
from syncswitch.storage.records import Evidence, TimingPolicy
from syncswitch.storage.selection import is_workload

__all__ = ["CURRENT", "PolicyRegistry"]

CURRENT = "current"
"""The alias that `publish` moves to each new version."""

_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,63}")


class PolicyRegistry:
    """Keeps every version of every timing policy. Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def publish(self, policy: TimingPolicy) -> TimingPolicy:
        """Adds a policy as the next version for its fingerprint, and points `current` at it.

        A study publishes once: later calls return what it published, and change nothing.

        Args:
            policy: Its version is ignored.

        Raises:
            PolicyError: The workload is not registered, or a value is impossible.
        """
        policy_to_dict(replace(policy, version=1))  # what cannot be exported is not published

        def operation(session: Session) -> TimingPolicy:
            _lock_workload(session, policy.fingerprint)
            query = _all().where(
                PolicyRow.fingerprint == policy.fingerprint, PolicyRow.study == policy.study
            )
            published = session.scalars(query).one_or_none()
            if published is not None:
                return _policy(published)
            row = _row(policy, _last_version(session, policy.fingerprint) + 1)
            session.add(row)
            session.flush()  # the alias refers to this row
            session.merge(
                PolicyAliasRow(fingerprint=row.fingerprint, alias=CURRENT, version=row.version)
            )
            return _policy(row)

        return self._database.write(operation)

    def lookup(
        self,
        workload: str,
        *,
        workers: int | None = None,
        protocols: tuple[str, str] | None = None,
        alias: str = CURRENT,
    ) -> list[TimingPolicy]:
        """The policy that an alias points at, one per fingerprint, newest first.

        Args:
            workload: Name, normal reference, or start of the fingerprint (8 digits or more).
            workers: Only for clusters of this size.
            protocols: Only for this pair of protocols.
            alias: Name of the alias.
        """
        query = (
            _all()
            .join(WorkloadRow, WorkloadRow.fingerprint == PolicyRow.fingerprint)
            .join(
                PolicyAliasRow,
                (PolicyAliasRow.fingerprint == PolicyRow.fingerprint)
                & (PolicyAliasRow.version == PolicyRow.version),
            )
            .where(PolicyAliasRow.alias == alias, is_workload(workload))
        )
        if workers is not None:
            query = query.where(PolicyRow.workers == workers)
        if protocols is not None:
            first, second = protocols
            query = query.where(
                PolicyRow.first_protocol == first, PolicyRow.second_protocol == second
            )
        return self._read(query)

    def get(self, fingerprint: str, version: int) -> TimingPolicy | None:
        """One version; None where there is none."""
        query = _all().where(PolicyRow.fingerprint == fingerprint, PolicyRow.version == version)
        found = self._read(query)
        return found[0] if found else None

    def policies(self, *, workload: str | None = None) -> list[TimingPolicy]:
        """All versions, newest first; `workload` as in `lookup`."""
        query = _all()
        if workload is not None:
            query = query.join(WorkloadRow, WorkloadRow.fingerprint == PolicyRow.fingerprint).where(
                is_workload(workload)
            )
        return self._read(query)

    def aliases(self, fingerprint: str) -> dict[str, int]:
        """Version by alias."""
        query = (
            select(PolicyAliasRow)
            .where(PolicyAliasRow.fingerprint == fingerprint)
            .order_by(PolicyAliasRow.alias)
        )
        with self._database.session(read_only=True) as session:
            return {row.alias: row.version for row in session.scalars(query)}

    def set_alias(self, fingerprint: str, alias: str, version: int) -> None:
        """Points an alias at a version, wherever it pointed before.

        Raises:
            PolicyError: The alias is no legal name, or there is no such version.
        """
        if not _ALIAS.fullmatch(alias):
            raise PolicyError(
                f"{alias!r} cannot be an alias; allowed: a small letter, then up to 63 small"
                f" letters, digits and hyphens, for example pinned"
            )

        def operation(session: Session) -> None:
            if session.get(PolicyRow, (fingerprint, version)) is None:
                last = _last_version(session, fingerprint)
                allowed = f"allowed: 1 to {last}" if last else "it has no policy yet"
                raise PolicyError(
                    f"workload {fingerprint[:12]} has no policy version {version}; {allowed}"
                    f" (see `syncswitch-search policy list`)"
                )
            session.merge(PolicyAliasRow(fingerprint=fingerprint, alias=alias, version=version))

        self._database.write(operation)

    def _read(self, query: Select[Any]) -> list[TimingPolicy]:
        newest_first = query.order_by(
            PolicyRow.created_at.desc(), PolicyRow.version.desc(), PolicyRow.fingerprint
        )
        with self._database.session(read_only=True) as session:
            return [_policy(row) for row in session.scalars(newest_first)]


def _lock_workload(session: Session, fingerprint: str) -> None:
    """Makes publishers of one workload take turns, so that each sees the last one's version."""
    query = select(WorkloadRow).where(WorkloadRow.fingerprint == fingerprint).with_for_update()
    if session.scalars(query).one_or_none() is None:
        raise PolicyError(
            f"workload {fingerprint[:12]} is not in this database; the policies of a workload can"
            f" be published once `syncswitch-search run` has searched for it here"
        )


def _last_version(session: Session, fingerprint: str) -> int:
    query = select(func.max(PolicyRow.version)).where(PolicyRow.fingerprint == fingerprint)
    return session.scalar(query) or 0


def _all() -> Select[Any]:
    return select(PolicyRow).options(selectinload(PolicyRow.evidence))


def _row(policy: TimingPolicy, version: int) -> PolicyRow:
    content = {name: getattr(policy, name) for name in TimingPolicy.__dataclass_fields__}
    content["version"] = version
    content["created_at"] = datetime.fromisoformat(policy.created_at).astimezone(timezone.utc)
    content["software"] = dict(policy.software)
    content["evidence"] = [
        EvidenceRow(position=position, **asdict(evidence))
        for position, evidence in enumerate(policy.evidence)
    ]
    return PolicyRow(**content)


def _policy(row: PolicyRow) -> TimingPolicy:
    content = {name: getattr(row, name) for name in TimingPolicy.__dataclass_fields__}
    content["created_at"] = row.created_at.isoformat()
    content["evidence"] = tuple(
        Evidence(**{name: getattr(item, name) for name in Evidence.__dataclass_fields__})
        for item in row.evidence
    )
    return TimingPolicy(**content)
