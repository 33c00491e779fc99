"""The policy registry: immutable versions, and aliases that point at them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    String,
    Table,
    and_,
    false,
    func,
    insert,
    select,
    update,
)

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import SEARCH_FIRST, Command, CommandHint, PolicyError
from syncswitch.storage.policies.file import PolicyFile, checked_content, job_mismatch
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import Job, Protocols, RegisteredWorkload, ScheduledJob
from syncswitch.storage.records.limits import LARGEST_INTEGER
from syncswitch.storage.records.policy import Evidence, TimingPolicy
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.base import add_rows, columns_of, record_of
from syncswitch.storage.tables.policies import ALIASES, EVIDENCE, POLICIES
from syncswitch.storage.tables.trials import TRIALS, WORKLOADS
from syncswitch.storage.trials.workloads import (
    add_workload,
    is_workload,
    lock_workload,
    registered_workload,
)

CURRENT = "current"
"""The alias that `publish` moves to each new version."""


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy as the registry keeps it.

    Attributes:
        policy: The policy.
        aliases: The aliases that point at it, in alphabetical order.
        imported_at: Time of the import, ISO 8601, UTC; None if a search in this database published
            it.
        job: The job that it was found for.
    """

    policy: TimingPolicy
    aliases: tuple[str, ...]
    imported_at: str | None
    job: Job

    @property
    def identity(self) -> ScheduledJob:
        """The job with the protocols of the policy."""
        return ScheduledJob(self.job, self.policy.protocols)


def current_ones(entries: Iterable[PolicyEntry]) -> list[PolicyEntry]:
    """Returns the current policy of each job with each of its protocols, in the same order."""
    alike: dict[tuple[str, Protocols], dict[int, PolicyEntry]] = {}
    for entry in entries:
        key = entry.policy.job.fingerprint, entry.policy.protocols
        alike.setdefault(key, {})[entry.policy.version] = entry
    pointed_at = (
        next((version for version, one in versions.items() if CURRENT in one.aliases), None)
        for versions in alike.values()
    )
    return [
        versions[_current_of(versions, at)]
        for versions, at in zip(alike.values(), pointed_at, strict=True)
    ]


def _current_of(versions: Collection[int], pointed_at: int | None) -> int:
    """Returns which of the versions with the same protocols is current.

    That is the one that the alias points at, or else the newest.
    """
    return pointed_at if pointed_at is not None and pointed_at in versions else max(versions)


@dataclass(frozen=True, slots=True)
class EvidenceTrial:
    """A trial that a policy rests on, as the database has it now.

    Attributes:
        trial_id: Its number; None if it is not in this database.
        agrees: Whether it is complete, with the measurements that the policy states.
    """

    trial_id: int | None
    agrees: bool


def read_policies(
    connection: Connection, query: Select[Any]
) -> list[tuple[Row[Any], TimingPolicy]]:
    """Returns the rows of a query with their policies, newest first; times are in UTC."""
    newest_first = (POLICIES.c.created_at.desc(), POLICIES.c.version.desc(), POLICIES.c.fingerprint)
    rows = connection.execute(query.order_by(*newest_first)).all()
    chosen = query.with_only_columns(POLICIES.c.fingerprint, POLICIES.c.version).subquery()
    is_chosen = (chosen.c.fingerprint == EVIDENCE.c.fingerprint) & (
        chosen.c.version == EVIDENCE.c.version
    )
    columns = columns_of(Evidence, EVIDENCE)
    runs = (
        select(EVIDENCE.c.fingerprint, EVIDENCE.c.version, *columns)
        .join(chosen, is_chosen)
        .order_by(EVIDENCE.c.position)
    )
    evidence: dict[tuple[str, int], list[Evidence]] = defaultdict(list)
    for fingerprint, version, *values in connection.execute(runs) if rows else ():
        evidence[fingerprint, version].append(Evidence(*values))
    return [
        (
            row,
            record_of(
                TimingPolicy,
                row,
                evidence=tuple(evidence[row.fingerprint, row.version]),
                created_at=row.created_at.isoformat(),
                band=None if row.band is None else Band.of(row.band),
            ),
        )
        for row in rows
    ]


def _last_version(connection: Connection, fingerprint: str) -> int:
    query = select(func.max(POLICIES.c.version)).where(POLICIES.c.fingerprint == fingerprint)
    return connection.scalar(query) or 0


def _add_version(
    connection: Connection, policy: TimingPolicy, imported_at: datetime | None = None
) -> TimingPolicy:
    version = _last_version(connection, policy.job.fingerprint) + 1
    created_at = datetime.fromisoformat(policy.created_at).astimezone(timezone.utc)
    content = {**flat(policy), "version": version, "created_at": created_at}
    evidence = content.pop("evidence")
    connection.execute(insert(POLICIES).values(imported_at=imported_at, **content))
    runs = [{"position": position, **run} for position, run in enumerate(evidence)]
    add_rows(connection, EVIDENCE, runs, fingerprint=policy.job.fingerprint, version=version)
    return replace(policy, version=version, created_at=created_at.isoformat())


def _point(connection: Connection, fingerprint: str, alias: str, version: int) -> None:
    values = {"fingerprint": fingerprint, "alias": alias, "version": version}
    if _pointed_at(connection, fingerprint, alias) is None:
        connection.execute(insert(ALIASES).values(values))
    else:
        here = (ALIASES.c.fingerprint == fingerprint) & (ALIASES.c.alias == alias)
        connection.execute(update(ALIASES).where(here).values(values))


def _current(connection: Connection, fingerprint: str, protocols: Protocols) -> int | None:
    """Returns the version that is current with these protocols; None without any."""
    rule = POLICIES.c.momentum_after_switch.is_not_distinct_from(protocols.momentum_after_switch)
    versions = connection.scalars(
        select(POLICIES.c.version).where(
            POLICIES.c.fingerprint == fingerprint,
            POLICIES.c.first_protocol == protocols.first_protocol,
            POLICIES.c.second_protocol == protocols.second_protocol,
            rule,
        )
    ).all()
    if not versions:
        return None
    return _current_of(versions, _pointed_at(connection, fingerprint, CURRENT))


def _pointed_at(connection: Connection, fingerprint: str, alias: str) -> int | None:
    here = (ALIASES.c.fingerprint == fingerprint) & (ALIASES.c.alias == alias)
    return connection.scalar(select(ALIASES.c.version).where(here))


_IS_POINTED_AT = (ALIASES.c.fingerprint == POLICIES.c.fingerprint) & (
    ALIASES.c.version == POLICIES.c.version
)
_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,63}")


class PolicyRegistry:
    """Keeps every version of every timing policy. Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def publish(self, policy: TimingPolicy, *, replaces: int | None = None) -> TimingPolicy:
        """Adds a policy as the next version for its fingerprint, and points `current` at it.

        A study publishes once: later calls return what it published, and change nothing. A policy
        imported from a study of the same name in another database does not count.

        Args:
            policy: The policy; its version is ignored.
            replaces: The version that `current` has to be at; None for any.

        Raises:
            PolicyError: The workload is not registered, a value is impossible, or `current` was
                moved to another version.
        """
        checked_content(replace(policy, version=1))

        def operation(connection: Connection) -> TimingPolicy:
            if lock_workload(connection, policy.job.fingerprint) is None:
                raise PolicyError(
                    f"workload {policy.job.fingerprint[:12]} is not in this database, where its"
                    " policies could be published",
                    remedy=SEARCH_FIRST,
                    code="policy-not-found",
                )
            before = _published_by(policy.job.fingerprint, policy.study)
            for _, published in read_policies(connection, before):
                return published
            current = _current(connection, policy.job.fingerprint, policy.protocols)
            if replaces not in (None, current):
                at = "nothing" if current is None else f"version {current}"
                raise PolicyError(
                    f"{CURRENT} of workload {policy.job.fingerprint[:12]} is {at}, not version"
                    f" {replaces} any more",
                    remedy=CommandHint(Command.LIST_POLICIES),
                    code="policy-moved",
                )
            published = _add_version(connection, policy)
            _point(connection, published.job.fingerprint, CURRENT, published.version)
            return published

        return self._database.write(operation)

    def current(self, fingerprint: str, protocols: Protocols) -> TimingPolicy | None:
        """Returns the policy of a job that is current with these protocols.

        That is the one that the alias points at, or else the newest with them; None without any.
        """
        with self._database.transaction(read_only=True) as connection:
            version = _current(connection, fingerprint, protocols)
        return None if version is None else self.get(fingerprint, version)

    def published(self, fingerprint: str, study: str) -> TimingPolicy | None:
        """Returns the policy that a search of this database published; None if it has not."""
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
        """Returns the policies that an alias points at, one per fingerprint, newest first.

        Args:
            workload: Name, normal reference, or start of the fingerprint (8 digits or more).
            workers: Only for clusters of this size.
            protocols: Only for this pair of protocols.
            alias: Name of the alias.
        """
        query = _of_workload(workload).join(ALIASES, _IS_POINTED_AT).where(ALIASES.c.alias == alias)
        if workers is not None:
            query = query.where(_equals(POLICIES.c.workers, workers))
        if protocols is not None:
            first, second = protocols
            query = query.where(
                POLICIES.c.first_protocol == first, POLICIES.c.second_protocol == second
            )
        return self._read(query)

    def get(self, fingerprint: str, version: int) -> TimingPolicy | None:
        """Returns one version; None if there is none."""
        found = self._read(select(POLICIES).where(_is_version(fingerprint, version)))
        return found[0] if found else None

    def policies(self, *, workload: str | None = None) -> list[TimingPolicy]:
        """Returns all versions, newest first; `workload` as in `lookup`."""
        return self._read(_of_workload(workload))

    def entries(self, *, workload: str | None = None) -> list[PolicyEntry]:
        """Returns all versions with their aliases, newest first; `workload` as in `lookup`."""
        return self._entries(_of_workload(workload))

    def entry(self, fingerprint: str, version: int) -> PolicyEntry | None:
        """Returns one version with its aliases; None if there is none."""
        found = self._entries(select(POLICIES).where(_is_version(fingerprint, version)))
        return found[0] if found else None

    def workload(self, fingerprint: str) -> RegisteredWorkload | None:
        """Returns the workload of a fingerprint; None if the database does not know it."""
        rows = self._database.rows(select(WORKLOADS).where(WORKLOADS.c.fingerprint == fingerprint))
        return registered_workload(rows[0]) if rows else None

    def workloads(self, selector: str) -> list[RegisteredWorkload]:
        """Returns the workloads of a name, reference or start of a fingerprint, newest first."""
        newest_first = (WORKLOADS.c.registered_at.desc(), WORKLOADS.c.fingerprint)
        query = select(WORKLOADS).where(is_workload(selector)).order_by(*newest_first)
        return [registered_workload(row) for row in self._database.rows(query)]

    def evidence_trials(self, fingerprint: str, version: int) -> list[EvidenceTrial]:
        """Returns the trials that a version rests on, in their order."""
        same = ("switch_percent", "replicate", "converged_accuracy", "diverged")
        measured = (
            TRIALS.c.state == TrialState.COMPLETE,
            *(TRIALS.c[name] == EVIDENCE.c[name] for name in same),
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
            for trial_id, agrees in self._database.rows(query)
        ]

    def aliases(self, fingerprint: str) -> dict[str, int]:
        """Returns the version that each alias points at."""
        of_job = select(ALIASES).where(ALIASES.c.fingerprint == fingerprint)
        rows = self._database.rows(of_job.order_by(ALIASES.c.alias))
        return {row.alias: row.version for row in rows}

    def set_alias(self, fingerprint: str, alias: str, version: int) -> None:
        """Points an alias at a version, whatever it pointed at before.

        Raises:
            PolicyError: The name cannot be an alias, or there is no such version.
        """
        if not _ALIAS.fullmatch(alias):
            raise PolicyError(
                f"{alias!r} cannot be an alias; allowed: a lowercase letter, then up to 63"
                f" lowercase letters, digits and hyphens, for example pinned",
                code="parameter-invalid",
            )

        def operation(connection: Connection) -> None:
            # Versions have no gaps, and databases cannot compare with a number that is too large.
            last = _last_version(connection, fingerprint)
            if not 1 <= version <= last:
                raise PolicyError(
                    f"workload {fingerprint[:12]} has no policy version {version}",
                    allowed=f"1 to {last}" if last else "none, as it has no policy yet",
                    remedy=CommandHint(Command.LIST_POLICIES),
                    code="policy-not-found",
                )
            _point(connection, fingerprint, alias, version)

        self._database.write(operation)

    def roll_back(self, fingerprint: str, alias: str = CURRENT) -> tuple[int, int]:
        """Points an alias at the next lower version.

        Returns:
            The version before, and the one after.

        Raises:
            PolicyError: There is no such alias, it is at the lowest version, or another process
                moved it at the same moment.
        """
        known = self.aliases(fingerprint)
        before = known.get(alias)
        if before is None:
            raise PolicyError(
                f"workload {fingerprint[:12]} has no alias {alias!r}; it has:"
                f" {', '.join(known) or 'none'}",
                code="policy-not-found",
            )

        def operation(connection: Connection) -> int:
            lock_workload(connection, fingerprint)
            query = select(func.max(POLICIES.c.version)).where(
                POLICIES.c.fingerprint == fingerprint, POLICIES.c.version < before
            )
            lower: int | None = connection.scalar(query)
            if lower is None:
                raise PolicyError(
                    f"{alias} of workload {fingerprint[:12]} is version {before}, the lowest one:"
                    f" there is none to roll back to",
                    code="policy-not-found",
                )
            # A repeated attempt may find its own change, and must not go further back.
            if _pointed_at(connection, fingerprint, alias) not in {before, lower}:
                raise PolicyError(
                    f"{alias} of workload {fingerprint[:12]} was moved from version {before} by"
                    " another process at this moment",
                    remedy=CommandHint(Command.LIST_POLICIES),
                    code="policy-moved",
                )
            _point(connection, fingerprint, alias, lower)
            return lower

        return before, self._database.write(operation)

    def _read(self, query: Select[Any]) -> list[TimingPolicy]:
        with self._database.transaction(read_only=True) as connection:
            return [policy for _, policy in read_policies(connection, query)]

    def _entries(self, query: Select[Any]) -> list[PolicyEntry]:
        names: dict[tuple[str, int], list[str]] = defaultdict(list)
        wanted = query.with_only_columns(POLICIES.c.fingerprint)
        workloads = select(WORKLOADS).where(WORKLOADS.c.fingerprint.in_(wanted))
        aliases = select(ALIASES).where(ALIASES.c.fingerprint.in_(wanted)).order_by(ALIASES.c.alias)
        with self._database.transaction(read_only=True) as connection:
            for row in connection.execute(aliases):
                names[row.fingerprint, row.version].append(row.alias)
            jobs = {row.fingerprint: row for row in connection.execute(workloads)}
            return [
                PolicyEntry(
                    policy=policy,
                    aliases=tuple(names[row.fingerprint, row.version]),
                    imported_at=None if row.imported_at is None else row.imported_at.isoformat(),
                    job=registered_workload(jobs[row.fingerprint]).job,
                )
                for row, policy in read_policies(connection, query)
            ]


def _published_by(fingerprint: str, study: str) -> Select[Any]:
    return select(POLICIES).where(
        POLICIES.c.fingerprint == fingerprint,
        POLICIES.c.study == study,
        POLICIES.c.imported_at.is_(None),
    )


def _is_version(fingerprint: str, version: int) -> ColumnElement[bool]:
    return (POLICIES.c.fingerprint == fingerprint) & _equals(POLICIES.c.version, version)


def _equals(column: Column[Any], value: int) -> ColumnElement[bool]:
    # Databases cannot compare with a number that is too large.
    return column == value if abs(value) <= LARGEST_INTEGER else false()


def _of_workload(selector: str | None) -> Select[Any]:
    query = select(POLICIES)
    if selector is None:
        return query
    return query.join(WORKLOADS, WORKLOADS.c.fingerprint == POLICIES.c.fingerprint).where(
        is_workload(selector)
    )


@dataclass(frozen=True, slots=True)
class ImportedPolicy:
    """What this database has of one file now; if the policy is not new, it was there already."""

    policy: TimingPolicy
    is_new: bool
    current_version: int
    job: Job

    @property
    def identity(self) -> ScheduledJob:
        """The job with the protocols of the policy."""
        return ScheduledJob(self.job, self.policy.protocols)


def import_policies(database: Database, files: Sequence[PolicyFile]) -> list[ImportedPolicy]:
    """Adds each file's policy as the next version of its workload: all of them, or none.

    A policy is recognized by its fingerprint, study and time of creation; one that is there already
    stays as it is, and PolicyError says if it says something else. An unknown workload is
    registered, a known one keeps its name and reference.
    """
    for file in files:
        _check_texts(file)

    def operation(connection: Connection) -> list[ImportedPolicy]:
        jobs: dict[str, Job] = {}
        # In one order, so that two imports cannot wait for each other.
        for file in sorted(files, key=lambda file: file.policy.job.fingerprint):
            row = lock_workload(connection, file.policy.job.fingerprint)
            if row is None:
                add_workload(connection, file.workload)
            job = file.workload.job if row is None else registered_workload(row).job
            mismatch = job_mismatch(file.policy, job)
            if mismatch:
                raise PolicyError(f"policy file {file.path} was altered: {mismatch}")
            jobs[file.policy.job.fingerprint] = job
        return [_import(connection, file, jobs[file.policy.job.fingerprint]) for file in files]

    return database.write(operation)


def _check_texts(file: PolicyFile) -> None:
    """Refuses texts that are too long for a column, which only PostgreSQL would refuse itself."""
    values: list[tuple[Table, dict[str, object]]] = [(POLICIES, flat(file.policy))]
    values += [(EVIDENCE, asdict(run)) for run in file.policy.evidence]
    workload = {**flat(file.workload.job), "reference": file.workload.reference}
    values.append((WORKLOADS, workload))
    for table, row in values:
        for column in table.columns:
            text = row.get(column.name)
            if not isinstance(column.type, String) or not isinstance(text, str):
                continue
            longest = column.type.length
            if "\0" in text or (longest is not None and len(text) > longest):
                raise PolicyError(
                    f"policy file {file.path}: {column.name} {text[:40]!r} has {len(text)}"
                    f" characters; allowed: {longest or 'any number'}, none of them NUL"
                )


def _import(connection: Connection, file: PolicyFile, job: Job) -> ImportedPolicy:
    fingerprint = file.policy.job.fingerprint
    created_at = datetime.fromisoformat(file.policy.created_at).astimezone(timezone.utc)
    query = select(POLICIES).where(
        POLICIES.c.fingerprint == fingerprint,
        POLICIES.c.study == file.policy.study,
        POLICIES.c.created_at == created_at,
    )
    there = [policy for _, policy in read_policies(connection, query)]
    now = datetime.now(timezone.utc)
    policy = there[0] if there else _add_version(connection, file.policy, now)
    stated = replace(file.policy, version=policy.version, created_at=created_at.isoformat())
    if policy != stated:
        raise PolicyError(
            f"policy file {file.path} was altered: its policy is in this database already, as"
            f" version {policy.version} of workload {fingerprint[:12]}, and says something else",
            remedy=CommandHint(
                Command.COMPARE_POLICIES, (f"{fingerprint[:12]}@{policy.version}", str(file.path))
            ),
        )
    current = _pointed_at(connection, fingerprint, CURRENT)
    if current is None:
        _point(connection, fingerprint, CURRENT, policy.version)
    return ImportedPolicy(policy, not there, current or policy.version, job)
