"""Brings our tables of an earlier revision up to date, with Alembic; each revision is a file."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """Brings the tables up to the last revision, within the transaction of the connection."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
