"""The policy registry: immutable versions, and aliases that point at them."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Select, false, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.file import policy_to_dict
from syncswitch.storage.policies.rows import (
    CURRENT,
    EvidenceTrial,
    PolicyEntry,
    add_version,
    check_current,
    last_version,
    point,
    read_evidence_trials,
    read_policies,
)
from syncswitch.storage.records.job import LARGEST_INTEGER, RegisteredWorkload
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.tables.policies import PolicyAliasRow, PolicyRow
from syncswitch.storage.tables.trials import WorkloadRow
from syncswitch.storage.trials.selection import is_workload
from syncswitch.storage.trials.workloads import lock_workload, read_workloads, registered_workload

_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,63}")


class PolicyRegistry:
    """Keeps every version of every timing policy. Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def publish(self, policy: TimingPolicy, *, replaces: int | None = None) -> TimingPolicy:
        """Adds a policy as the next version for its fingerprint, and points `current` at it.

        A study publishes once: later calls return what it published, and change nothing. What was
        imported from a study of the same name in another database does not count.

        Args:
            policy: Its version is ignored.
            replaces: Only while `current` is this version; None for whatever it is.

        Raises:
            PolicyError: The workload is not registered, a value is impossible, or `current` was
                moved to another version.
        """
        policy_to_dict(replace(policy, version=1))  # what cannot be exported is not published

        def operation(session: Session) -> TimingPolicy:
            if lock_workload(session, policy.fingerprint) is None:
                raise PolicyError(
                    f"workload {policy.fingerprint[:12]} is not in this database; the policies of"
                    f" a workload can be published once `syncswitch-search run` has searched for"
                    f" it here"
                )
            for _, published in read_policies(
                session, _published_by(policy.fingerprint, policy.study)
            ):
                return published
            if replaces is not None:
                check_current(session, policy.fingerprint, replaces)
            published = add_version(session, policy)
            point(session, published.fingerprint, CURRENT, published.version)
            return published

        return self._database.write(operation)

    def published(self, fingerprint: str, study: str) -> TimingPolicy | None:
        """What a search of this database published; None where it has not."""
        found = self._read(_published_by(fingerprint, study))
        return found[0] if found else None

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
            _of_workload(select(PolicyRow), workload)
            .join(
                PolicyAliasRow,
                (PolicyAliasRow.fingerprint == PolicyRow.fingerprint)
                & (PolicyAliasRow.version == PolicyRow.version),
            )
            .where(PolicyAliasRow.alias == alias)
        )
        if workers is not None:
            query = query.where(_equals(PolicyRow.workers, workers))
        if protocols is not None:
            first, second = protocols
            query = query.where(
                PolicyRow.first_protocol == first, PolicyRow.second_protocol == second
            )
        return self._read(query)

    def choose(self, workload: str, choice: str) -> list[TimingPolicy]:
        """A version, or what an alias points at: one per fingerprint, newest first.

        Args:
            workload: As in `lookup`.
            choice: Number of the version, or name of the alias.
        """
        if not choice.isdecimal():
            return self.lookup(workload, alias=choice)
        versions = self.policies(workload=workload)
        return [policy for policy in versions if policy.version == int(choice)]

    def get(self, fingerprint: str, version: int) -> TimingPolicy | None:
        """One version; None where there is none."""
        found = self._read(select(PolicyRow).where(_is(fingerprint, version)))
        return found[0] if found else None

    def policies(self, *, workload: str | None = None) -> list[TimingPolicy]:
        """All versions, newest first; `workload` as in `lookup`."""
        query = select(PolicyRow)
        if workload is not None:
            query = _of_workload(query, workload)
        return self._read(query)

    def entries(self, *, workload: str | None = None) -> list[PolicyEntry]:
        """All versions with their aliases, newest first; `workload` as in `lookup`."""
        query, aliases = select(PolicyRow), select(PolicyAliasRow)
        if workload is not None:
            query = _of_workload(query, workload)
            aliases = aliases.join(
                WorkloadRow, WorkloadRow.fingerprint == PolicyAliasRow.fingerprint
            ).where(is_workload(workload))
        return self._entries(query, aliases)

    def entry(self, fingerprint: str, version: int) -> PolicyEntry | None:
        """One version with its aliases; None where there is none."""
        found = self._entries(
            select(PolicyRow).where(_is(fingerprint, version)),
            select(PolicyAliasRow).where(PolicyAliasRow.fingerprint == fingerprint),
        )
        return found[0] if found else None

    def workload(self, fingerprint: str) -> RegisteredWorkload | None:
        """What the policies of a fingerprint were found for; None where that is unknown."""
        with self._database.session(read_only=True) as session:
            row = session.get(WorkloadRow, fingerprint)
            return None if row is None else registered_workload(row)

    def workloads(self, selector: str) -> list[RegisteredWorkload]:
        """All that `selector` names, newest first; it is as the workload of `lookup`."""
        with self._database.session(read_only=True) as session:
            return read_workloads(session, selector)

    def evidence_trials(self, fingerprint: str, version: int) -> list[EvidenceTrial]:
        """What the database still has of the trials that a version rests on, in their order."""
        with self._database.session(read_only=True) as session:
            return read_evidence_trials(session, fingerprint, version)

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
            # Versions have no gaps, and a number that is too large cannot be asked for.
            last = last_version(session, fingerprint)
            if not 1 <= version <= last:
                allowed = f"allowed: 1 to {last}" if last else "it has no policy yet"
                raise PolicyError(
                    f"workload {fingerprint[:12]} has no policy version {version}; {allowed}"
                    f" (see `syncswitch-search policy list`)"
                )
            point(session, fingerprint, alias, version)

        self._database.write(operation)

    def roll_back(self, fingerprint: str, alias: str = CURRENT) -> tuple[int, int]:
        """Points an alias at the next lower version.

        Returns:
            The version before, and the one after.

        Raises:
            PolicyError: There is no such alias, it is at the lowest version, or somebody else
                moved it at the same moment.
        """
        known = self.aliases(fingerprint)
        before = known.get(alias)
        if before is None:
            raise PolicyError(
                f"workload {fingerprint[:12]} has no alias {alias!r}; it has:"
                f" {', '.join(known) or 'none'}"
            )

        def operation(session: Session) -> int:
            lock_workload(session, fingerprint)
            query = select(func.max(PolicyRow.version)).where(
                PolicyRow.fingerprint == fingerprint, PolicyRow.version < before
            )
            lower = session.scalar(query)
            if lower is None:
                raise PolicyError(
                    f"{alias} of workload {fingerprint[:12]} is version {before}, the lowest one:"
                    f" there is none to roll back to"
                )
            found = session.get(PolicyAliasRow, (fingerprint, alias))
            # A repeated attempt may find its own work done, and must not go further back.
            if found is None or found.version not in {before, lower}:
                raise PolicyError(
                    f"{alias} of workload {fingerprint[:12]} was moved from version {before} by"
                    f" somebody else at this moment; see `syncswitch-search policy list`"
                )
            point(session, fingerprint, alias, lower)
            return lower

        return before, self._database.write(operation)

    def _read(self, query: Select[Any]) -> list[TimingPolicy]:
        with self._database.session(read_only=True) as session:
            return [policy for _, policy in read_policies(session, query)]

    def _entries(self, query: Select[Any], aliases: Select[Any]) -> list[PolicyEntry]:
        names: dict[tuple[str, int], list[str]] = defaultdict(list)
        with self._database.session(read_only=True) as session:
            for alias in session.scalars(aliases.order_by(PolicyAliasRow.alias)):
                names[alias.fingerprint, alias.version].append(alias.alias)
            wanted = query.with_only_columns(PolicyRow.fingerprint)
            workloads = select(WorkloadRow).where(WorkloadRow.fingerprint.in_(wanted))
            jobs = {row.fingerprint: row for row in session.scalars(workloads)}
            return [
                PolicyEntry(
                    policy=policy,
                    aliases=tuple(names[row.fingerprint, row.version]),
                    imported_at=None if row.imported_at is None else row.imported_at.isoformat(),
                    identity=registered_workload(jobs[row.fingerprint]).identity,
                )
                for row, policy in read_policies(session, query)
            ]


def _published_by(fingerprint: str, study: str) -> Select[Any]:
    return select(PolicyRow).where(
        PolicyRow.fingerprint == fingerprint,
        PolicyRow.study == study,
        PolicyRow.imported_at.is_(None),
    )


def _is(fingerprint: str, version: int) -> ColumnElement[bool]:
    return (PolicyRow.fingerprint == fingerprint) & _equals(PolicyRow.version, version)


def _equals(column: InstrumentedAttribute[int], value: int) -> ColumnElement[bool]:
    # No database can be asked for what is too large for it.
    return column == value if abs(value) <= LARGEST_INTEGER else false()


def _of_workload(query: Select[Any], selector: str) -> Select[Any]:
    return query.join(WorkloadRow, WorkloadRow.fingerprint == PolicyRow.fingerprint).where(
        is_workload(selector)
    )
