"""Converts workloads to rows and back."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, insert, select, union, update

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.job import Job, RegisteredWorkload
from syncswitch.storage.tables.policies import ALIASES, POLICIES
from syncswitch.storage.tables.trials import SEARCHES, WORKLOADS

# The query itself may be about workloads or policies.
_WORKLOAD, _POLICY = WORKLOADS.alias().c, POLICIES.alias().c
_FINGERPRINT_PREFIX = re.compile(r"[0-9a-f]{8,64}")


def is_workload(selector: str) -> ColumnElement[bool]:
    """Selects workloads by name, normal reference, or start of the fingerprint (8 digits or more).

    Workloads are also found by a name that they had when one of their policies was published.
    """
    known = [
        select(_WORKLOAD.fingerprint).where(_WORKLOAD.name == selector),
        select(_WORKLOAD.fingerprint).where(_WORKLOAD.reference == selector),
        select(_POLICY.fingerprint).where(_POLICY.workload == selector),
    ]
    if _FINGERPRINT_PREFIX.fullmatch(selector):
        # Unlike LIKE, a range uses the index; "g" follows the last hexadecimal digit.
        start = _WORKLOAD.fingerprint.between(selector, f"{selector}g")
        known.append(select(_WORKLOAD.fingerprint).where(start))
    # With alternatives in one condition, PostgreSQL would read all trials.
    return WORKLOADS.c.fingerprint.in_(union(*known))


def add_workload(connection: Connection, workload: RegisteredWorkload) -> None:
    """Registers a workload that is not in the database."""
    values = {
        "fingerprint": workload.job.fingerprint,
        "reference": workload.reference,
        "registered_at": datetime.now(timezone.utc),
        "metric_name": workload.job.metric.name,
        **flat(workload.job),
    }
    connection.execute(insert(WORKLOADS).values(values))


def upsert_workload(connection: Connection, job: Job, reference: str) -> None:
    """Adds a workload, or updates its names; afterwards it is locked."""
    row = lock_workload(connection, job.fingerprint)
    if row is None:
        add_workload(connection, RegisteredWorkload(job, reference))
    elif (row.name, row.reference) != (job.name, reference):
        connection.execute(
            update(WORKLOADS)
            .where(WORKLOADS.c.fingerprint == job.fingerprint)
            .values(name=job.name, reference=reference)
        )


def register_workload(database: Database, job: Job, reference: str) -> None:
    """Registers a workload without a search, so that it can have policies."""
    database.write(lambda connection: upsert_workload(connection, job, reference))


def lock_workload(connection: Connection, fingerprint: str) -> Row[Any] | None:
    """Locks the row of a workload, so that each writer sees what the last one wrote."""
    query = select(WORKLOADS).where(WORKLOADS.c.fingerprint == fingerprint).with_for_update()
    return connection.execute(query).one_or_none()


def registered_workload(row: Row[Any]) -> RegisteredWorkload:
    """Returns the workload of a row; its fingerprint is that of the row again."""
    return RegisteredWorkload(Job.of(row._asdict()), row.reference)


def workload_names(url: str) -> list[str]:
    """Returns the names of the workloads, sorted.

    Raises SyncSwitchError if the database cannot be read, as the others do.
    """
    return _found(url, select(WORKLOADS.c.name))


def study_names(url: str) -> list[str]:
    """Returns the names of the searches, sorted."""
    return _found(url, select(SEARCHES.c.study))


def policy_choices(url: str, workload: str | None = None) -> tuple[list[str], list[int]]:
    """Returns the aliases and versions of the policies of a workload, or of all, sorted."""
    aliases, versions = select(ALIASES.c.alias), select(POLICIES.c.version)
    if workload is not None:
        fingerprints = select(WORKLOADS.c.fingerprint).where(is_workload(workload))
        aliases = aliases.where(ALIASES.c.fingerprint.in_(fingerprints))
        versions = versions.where(POLICIES.c.fingerprint.in_(fingerprints))
    return _found(url, aliases), _found(url, versions)


def _found(url: str, query: Select[Any]) -> list[Any]:
    with (
        open_database(url, create=False) as database,
        database.transaction(read_only=True) as connection,
    ):
        return sorted(connection.scalars(query.distinct()))
