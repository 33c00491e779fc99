"""Run by Alembic at each of its commands."""

from __future__ import annotations

from alembic import context

from syncswitch.storage.database.inspection import VERSION_TABLE
from syncswitch.storage.tables import checkpoints, policies  # noqa: F401 (with all other tables)
from syncswitch.storage.tables.base import TABLE_PREFIX, Base


def is_ours(name: str | None, kind: str, parents: object) -> bool:
    """Hides the tables of Optuna, which autogenerate would otherwise propose to drop."""
    return kind != "table" or (name or "").startswith(TABLE_PREFIX)


def run() -> None:
    """Migrates on the connection that the caller gave, within its transaction."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=Base.metadata,
        version_table=VERSION_TABLE,
        include_name=is_ours,
        compare_type=True,
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()


# Alembic has a configuration only while it runs a command; anyone may import this module.
if hasattr(context, "config"):
    run()
