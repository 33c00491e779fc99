"""Names in a database that a command line can complete; a few short queries."""

from __future__ import annotations

from sqlalchemy import select, union

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.tables.policies import ALIASES, POLICIES
from syncswitch.storage.tables.trials import SEARCHES, WORKLOADS
from syncswitch.storage.trials.workloads import is_workload


def workload_names(url: str) -> list[str]:
    """Names of the workloads, sorted. Raises SyncSwitchError where the database cannot be read."""
    with (
        open_database(url, create=False) as database,
        database.transaction(read_only=True) as connection,
    ):
        return sorted(connection.scalars(select(WORKLOADS.c.name).distinct()))


def study_names(url: str) -> list[str]:
    """Names of the searches, sorted. Raises as `workload_names`."""
    with (
        open_database(url, create=False) as database,
        database.transaction(read_only=True) as connection,
    ):
        return sorted(connection.scalars(select(SEARCHES.c.study)))


def policy_choices(url: str, workload: str | None = None) -> tuple[list[str], list[int]]:
    """Aliases and versions of policies of a workload or of all, sorted.

    Raises as `workload_names`.
    """
    fingerprints = select(WORKLOADS.c.fingerprint)
    if workload is not None:
        fingerprints = fingerprints.where(is_workload(workload))
    alias, version = ALIASES.c.alias, POLICIES.c.version
    with (
        open_database(url, create=False) as database,
        database.transaction(read_only=True) as connection,
    ):
        aliases = select(alias).where(ALIASES.c.fingerprint.in_(fingerprints))
        versions = select(version).where(POLICIES.c.fingerprint.in_(fingerprints))
        return (
            sorted(connection.scalars(union(aliases))),
            sorted(connection.scalars(union(versions))),
        )
