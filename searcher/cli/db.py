"""`syncswitch-search db`: care of the database."""

from __future__ import annotations

import click

from syncswitch.trainers.console import EXIT_OK, common_options, print_json

__all__ = ["db"]


@click.group()
def db() -> None:
    """Takes care of the database."""


@db.command()
@common_options
def upgrade(storage_url: str, as_json: bool) -> int:
    """Brings the tables to the current version, ours and Optuna's. Copy the database first."""
    from syncswitch.searcher.study import upgrade_study_tables
    from syncswitch.storage.engine import upgrade_database
    from syncswitch.storage.inspection import shown

    upgrade_database(storage_url)
    upgrade_study_tables(storage_url)
    if as_json:
        print_json({"storage": shown(storage_url), "is_current": True})
    else:
        click.echo(f"{shown(storage_url)} has the current tables")
    return EXIT_OK
