"""What several commands take: WORKLOAD where it narrows what is shown, and a file to write."""

from __future__ import annotations

from pathlib import Path

import click

from syncswitch.cli.completion import complete_workload
from syncswitch.trainers.job.loading import normal_reference

optional_workload = click.argument(
    "reference", metavar="[WORKLOAD]", required=False, shell_complete=complete_workload
)


output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Default: standard output.",
)


def selector_of(reference: str | None) -> str | None:
    """What the database knows the workload by; None for all."""
    return None if reference is None else normal_reference(reference)


def nothing_found(reference: str | None, what: str = "search") -> str:
    """What to say where there is nothing to show."""
    of = f" of {reference}" if reference else ""
    return f"no {what}{of} here; start one with: syncswitch-search run {reference or 'WORKLOAD'}"
