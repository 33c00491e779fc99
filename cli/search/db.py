"""`syncswitch-search db`: checks and upgrades the database."""

from __future__ import annotations

from dataclasses import asdict

import click

from syncswitch.cli.console import EXIT_FAILED, EXIT_OK, echo, print_json, print_text
from syncswitch.cli.group import SubcommandGroup
from syncswitch.cli.options import common_options
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import shown


@click.group(cls=SubcommandGroup)
def db() -> None:
    """Check and upgrade the database."""


@db.command()
@common_options
def upgrade(storage_url: str, as_json: bool) -> None:
    """Upgrade Optuna's tables to the installed version of Optuna. Copy the database first."""
    from syncswitch.searcher.search.optuna_storage import upgrade_study_tables

    open_database(storage_url, create=False).close()
    place, was_old = shown(storage_url), upgrade_study_tables(storage_url)
    if as_json:
        print_json({"storage": place, "is_current": True})
    elif was_old:
        echo(f"{place}: Optuna's tables are now those of the installed Optuna")
    else:
        echo(f"{place} is up to date: nothing to do")


@db.command()
@common_options
def check(storage_url: str, as_json: bool) -> int:
    """Check that the database is intact and consistent. Exit status 1 if not.

    It checks the tables, the file and the references between rows (SQLite), the values of runs, the
    processes that claim to be making one, and Optuna's records of the searches. It changes nothing.
    """
    from syncswitch.searcher.search.optuna_storage import check_database

    place, findings = shown(storage_url), check_database(storage_url)
    problems = sum(finding.is_problem for finding in findings)
    if as_json:
        found = list(map(asdict, findings))
        print_json({"storage": place, "is_healthy": not problems, "findings": found})
    else:
        for finding in findings:
            label = "problem" if finding.is_problem else "note"
            print_text(f"{label}: {finding.kind}: {finding.what}")
            print_text(f"  to do: {finding.fix}")
        echo(f"{place}: {problems} problem(s)" if problems else f"{place} is intact")
    return EXIT_FAILED if problems else EXIT_OK
