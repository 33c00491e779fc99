"""Names in a database, for the completion of a command line."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, select

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.tables.policies import ALIASES, POLICIES
from syncswitch.storage.tables.trials import SEARCHES, WORKLOADS
from syncswitch.storage.trials.workloads import is_workload


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
