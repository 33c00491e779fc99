"""What there is in a database to be named on a command line; a few short queries."""

from __future__ import annotations

from sqlalchemy import select, union

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.tables.policies import PolicyAliasRow, PolicyRow
from syncswitch.storage.tables.trials import SearchRow, WorkloadRow
from syncswitch.storage.trials.selection import is_workload


def workload_names(url: str) -> list[str]:
    """Names of the workloads, sorted. Raises SyncSwitchError where the database cannot be read."""
    with open_database(url, create=False) as database, database.session(read_only=True) as session:
        return sorted(session.scalars(select(WorkloadRow.name).distinct()))


def study_names(url: str) -> list[str]:
    """Names of the searches, sorted. Raises as `workload_names`."""
    with open_database(url, create=False) as database, database.session(read_only=True) as session:
        return sorted(session.scalars(select(SearchRow.study)))


def policy_choices(url: str, workload: str | None = None) -> tuple[list[str], list[int]]:
    """Aliases and versions of policies of a workload or of all, sorted.

    Raises as `workload_names`.
    """
    fingerprints = select(WorkloadRow.fingerprint)
    if workload is not None:
        fingerprints = fingerprints.where(is_workload(workload))
    alias, version = PolicyAliasRow.alias, PolicyRow.version
    with open_database(url, create=False) as database, database.session(read_only=True) as session:
        aliases = select(alias).where(PolicyAliasRow.fingerprint.in_(fingerprints))
        versions = select(version).where(PolicyRow.fingerprint.in_(fingerprints))
        return (
            sorted(session.scalars(union(aliases))),
            sorted(session.scalars(union(versions))),
        )
