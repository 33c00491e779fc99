"""Checks that a database is whole, with Alembic and SQLite; only reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import inspect

from syncswitch.storage.database.engine import Database
from syncswitch.storage.database.inspection import VERSION_TABLE
from syncswitch.storage.errors import SyncSwitchError, one_line
from syncswitch.storage.tables.base import METADATA, TABLE_PREFIX
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS

RESTORE = "restore the database from a copy"

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check of a part of a database found, in one line, with the remedy as a clause.

    Without a problem it is only information.
    """

    kind: str
    is_problem: bool
    what: str
    fix: str


def database_findings(database: Database) -> Iterator[Finding]:
    """Yields the faults of a database with our tables."""
    if missing := _missing(database):
        yield Finding("schema", True, listed("missing or changed", missing), RESTORE)
    if database.engine.dialect.name != "sqlite":
        return  # a server checks its files and references itself
    if damage := _damage(database):
        fix = "restore the file from a copy; what is readable, `sqlite3 FILE .recover` prints"
        yield Finding("integrity", True, listed("faults in the file", damage), fix)


def listed(what: str, examples: Sequence[str]) -> str:
    """Lists a few examples, as in `parts that are missing (7): a, b, c, d, e, ...`."""
    more = ", ..." if len(examples) > _EXAMPLES else ""
    return f"{what} ({len(examples)}): {', '.join(examples[:_EXAMPLES])}{more}"


def _missing(database: Database) -> list[str]:
    """Returns parts of our tables that were removed or changed; additions do no harm."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    import syncswitch.storage.tables.indexes  # noqa: F401 (completes METADATA)

    def is_ours(name: str | None, kind: str, _: object) -> bool:
        return kind != "table" or (name or "").startswith(TABLE_PREFIX)

    options = {"version_table": VERSION_TABLE, "include_name": is_ours, "compare_type": True}
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        changes = compare_metadata(context, METADATA)
        found = [name for change in changes for name in _lacking(change)]
        if TRIAL_FACTS.name not in inspect(connection).get_view_names():
            found.append(TRIAL_FACTS.name)
    return found


def _lacking(change: Any) -> list[str]:
    """Returns the names that a change of Alembic would add or modify; none if it would remove."""
    match change:
        case [(_, _, table, column, *_), *_]:
            return [f"{table}.{column}"]
        case ("add_column", _, table, column):
            return [f"{table}.{column.name}"]
        case (str(kind), part, *_) if kind.startswith("add_"):
            return [str(part.name)]
    return []


def _damage(database: Database) -> list[str]:
    """Returns the faults that SQLite reports in its file."""
    try:
        with database.transaction(read_only=True) as connection:
            run = connection.exec_driver_sql
            faults = run("PRAGMA integrity_check").scalars().all()
            lost = run("PRAGMA foreign_key_check").all()
    except SyncSwitchError as error:
        return [one_line(error)]
    rows = [f"a row of {table} refers to a missing row of {other}" for table, _, other, _ in lost]
    return [" ".join(str(fault).split()) for fault in faults if fault != "ok"] + rows
