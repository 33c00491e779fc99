"""Alembic runs this file, with the connection that `upgrade` hands over."""

from __future__ import annotations

from alembic import context

from syncswitch.storage.database.inspection import VERSION_TABLE

if hasattr(context, "config"):  # not where a tool imports all modules
    context.configure(
        connection=context.config.attributes["connection"],
        version_table=VERSION_TABLE,
        transaction_per_migration=False,
    )
    context.run_migrations()
