"""Makes and upgrades our tables with Alembic, from code: users need no configuration file."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection

from syncswitch.storage.errors import DatabaseError


def configuration() -> Config:
    """Alembic's configuration, with this package as its script directory."""
    config = Config()
    config.set_main_option("script_location", "syncswitch.storage.database:migrations")
    return config


def upgrade(connection: Connection, place: str) -> None:
    """Upgrades the tables to the newest revision, in the transaction that the caller began.

    Args:
        connection: In a transaction.
        place: What messages call the database.

    Raises:
        DatabaseError: No migration leads from the revision found to the newest.
    """
    config = configuration()
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise DatabaseError(
            f"cannot upgrade {place}: {error}; restore it, or name another with --storage URL"
        ) from error
