"""Brings our tables of an earlier revision up to date, with Alembic; each revision is a file."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """Brings the tables up to the last revision, within the transaction of the connection.

    The view of trials, which stands in the way of changes, is made again from today's tables.
    """
    from alembic import command
    from alembic.config import Config

    from syncswitch.storage.tables.trial_facts import TRIAL_FACTS, create_view

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    connection.exec_driver_sql(f"DROP VIEW {TRIAL_FACTS.name}")
    command.upgrade(config, "head")
    connection.exec_driver_sql(create_view())
