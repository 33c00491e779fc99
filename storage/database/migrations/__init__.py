"""Makes and upgrades our tables with Alembic, from code: users need no configuration file."""

from __future__ import annotations

from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import Connection

from syncswitch.storage.database.inspection import VERSION_TABLE
from syncswitch.storage.database.migrations.env import is_ours
from syncswitch.storage.errors import DatabaseError
from syncswitch.storage.tables.base import Base
from syncswitch.storage.tables.trial_facts import create_view


def configuration() -> Config:
    """Alembic's configuration, with this package as its script directory."""
    config = Config()
    config.set_main_option("script_location", "syncswitch.storage.database:migrations")
    return config


def create(connection: Connection) -> None:
    """Makes all tables and the view as the models describe them, in a transaction that is open."""
    Base.metadata.create_all(connection)
    connection.exec_driver_sql(create_view())
    command.stamp(_on(connection), "head")


def upgrade(connection: Connection, place: str) -> None:
    """Upgrades the tables to the newest revision, in a transaction that is open.

    Raises DatabaseError where no migration leads there from the revision found.
    """
    try:
        command.upgrade(_on(connection), "head")
    except CommandError as error:
        raise DatabaseError(
            f"cannot upgrade {place}: {error}; restore it, or name another with --storage URL"
        ) from error


def _on(connection: Connection) -> Config:
    config = configuration()
    config.attributes["connection"] = connection
    return config


def differences(connection: Connection) -> list[str]:
    """What our tables lack, or have otherwise than the models; what they have more does no harm."""
    options = {"version_table": VERSION_TABLE, "include_name": is_ours, "compare_type": True}
    context = MigrationContext.configure(connection, opts=options)
    return [name for change in compare_metadata(context, Base.metadata) for name in _names(change)]


def _names(change: Any) -> list[str]:
    """Of what a change of Alembic's would add or modify; none where it would remove something."""
    match change:
        case [(_, _, table, column, *_), *_]:
            return [f"{table}.{column}"]
        case ("add_column", _, table, column):
            return [f"{table}.{column.name}"]
        case (str(kind), part, *_) if kind.startswith("add_"):
            return [str(part.name)]
    return []
