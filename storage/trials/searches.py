"""Searches as rows, and back."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Connection, insert, select, update

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import DatabaseError, FatalError
from syncswitch.storage.tables.base import record_of
from syncswitch.storage.tables.trials import SEARCHES, WORKLOADS
from syncswitch.storage.trials.selection import is_workload
from syncswitch.storage.trials.values import SearchInfo


def write_search(connection: Connection, search: SearchInfo) -> SearchInfo:
    """Adds a search, or brings its settings up to date; gives it as the database has it then.

    Its options stay its first writer's: they may be computed from what the database held when the
    search began, and its strategy must not change while it runs. That it was dropped stays, too,
    and the threshold, which the search may have measured.

    Raises:
            DatabaseError: The study belongs to another workload.
            FatalError: An option is no JSON.
    """
    values = {**asdict(search), "options": _as_json(search)}
    query = select(SEARCHES).where(SEARCHES.c.study == search.study)
    row = connection.execute(query).one_or_none()
    if row is None:
        values["registered_at"] = datetime.now(timezone.utc)
        connection.execute(insert(SEARCHES).values(values))
        return record_of(SearchInfo, connection.execute(query).one())
    if row.fingerprint != search.fingerprint:
        raise DatabaseError(
            f"study {search.study!r} is a search for workload {row.fingerprint[:12]}, not for"
            f" {search.fingerprint[:12]}; give the new search a study name of its own"
        )
    stored = asdict(record_of(SearchInfo, row))
    fixed = {"options", "dropped", "threshold"}
    changed = {name: values[name] for name in stored.keys() - fixed if stored[name] != values[name]}
    if changed:
        connection.execute(update(SEARCHES).where(SEARCHES.c.study == search.study).values(changed))
    return record_of(SearchInfo, connection.execute(query).one())


def read_searches(connection: Connection, workload: str | None) -> list[SearchInfo]:
    """Searches of a workload or of all, in the order in which they were registered."""
    query = select(SEARCHES).join(WORKLOADS)
    if workload is not None:
        query = query.where(is_workload(workload))
    query = query.order_by(SEARCHES.c.registered_at, SEARCHES.c.study)
    return [record_of(SearchInfo, row) for row in connection.execute(query)]


def read_registration(connection: Connection, study: str) -> datetime | None:
    """When a search was registered; None where it was not."""
    return connection.scalar(select(SEARCHES.c.registered_at).where(SEARCHES.c.study == study))


def drop_search(database: Database, study: str, why: str) -> None:
    """Records why a search ends without a policy; see `SearchInfo.dropped`."""
    statement = update(SEARCHES).where(SEARCHES.c.study == study).values(dropped=why)

    def operation(connection: Connection) -> None:
        connection.execute(statement)

    database.write(operation)


def _as_json(search: SearchInfo) -> dict[str, Any]:
    """The options as they come back from the database; SQLite would take a NaN, too."""
    try:
        options: dict[str, Any] = json.loads(json.dumps(dict(search.options), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise FatalError(
            f"an option of search {search.study!r} is no JSON value: {error}"
        ) from error
    return options
