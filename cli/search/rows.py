"""Shared parts of the commands that list rows: WORKLOAD, --format, -o, limited tables."""

from __future__ import annotations

import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from syncswitch.cli.completion import complete_workload
from syncswitch.cli.console import Row, echo, print_note, print_rows
from syncswitch.searcher.words import metric_title
from syncswitch.storage.errors import UserError
from syncswitch.storage.files import whole_file
from syncswitch.storage.records.metric import Metric
from syncswitch.trainers.job.loading import find_module, normal_reference

optional_workload = click.argument(
    "reference", metavar="[WORKLOAD]", required=False, shell_complete=complete_workload
)


output_option = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write.  [default: standard output]",
)


def selector_of(reference: str | None) -> str | None:
    """The name of the workload in the database; None for all workloads."""
    return None if reference is None else normal_reference(reference)


def nothing_found(reference: str | None, what: str = "search") -> str:
    """The message if there is nothing to show."""
    of, known = f" of {reference}" if reference else "", "WORKLOAD"
    if reference:
        with suppress(UserError):  # the name of a job, or of a command, starts nothing
            find_module(reference)
            known = shlex.quote(reference)
    return f"no {what}{of} here; start one with: syncswitch-search run {known}"


_Row = TypeVar("_Row", bound=Any)
_MOST_ROWS = 1000  # in a table for people


def newest_of(rows: Iterable[_Row]) -> tuple[Sequence[_Row], str]:
    """The newest thousand rows, for a table for people, and how to get the others, if there are."""
    newest: deque[_Row] = deque(maxlen=_MOST_ROWS)
    number = 0
    for number, row in enumerate(rows, 1):  # noqa: B007 (it is their count in the end)
        newest.append(row)
    if number <= _MOST_ROWS:
        return newest, ""
    return newest, f"\nthe newest {_MOST_ROWS:,} of {number:,}; all of them: --format csv"


def print_newest(
    rows: Iterable[_Row], cells: Callable[[_Row, Metric, str], Row], nothing: str
) -> None:
    """Prints the newest rows as a table, which end with the newest; or that there is nothing.

    The cells of a row depend on the metric of its job and the title of the column of metrics.
    """
    newest, rest = newest_of(rows)
    if not newest:
        echo(nothing)
        return
    metrics = [row.metric.metric for row in newest]
    title = metric_title(metrics)
    table = [cells(row, metric, title) for row, metric in zip(newest, metrics, strict=True)]
    if not any(row.job.simulated_cluster for row in newest):
        table = [[cell for cell in row if cell[0] != "workers"] for row in table]
    print_rows(table, {"speculative", "from", "under"}, prose="under")
    if rest:
        echo(rest)


def chosen_format(
    format_name: str | None,
    output: Path | None,
    as_json: bool,
    files: str,
    only_files: Mapping[str, bool] | None = None,
) -> str:
    """The format of `--format` and `--json`; raises UserError if they contradict each other."""
    if as_json and format_name not in {None, "json"}:
        raise UserError(
            f"--json and --format {format_name} contradict each other; give one",
            code="parameters-conflict",
        )
    kind = "json" if as_json else format_name or "table"
    for option, is_given in {"--output": output is not None, **(only_files or {})}.items():
        if is_given and kind == "table":
            raise UserError(
                f"{option} goes with --format {files}; give one of them", code="parameters-conflict"
            )
    return kind


def write_rows(what: str, output: Path | None, write: Callable[[BinaryIO], None]) -> None:
    """Writes rows to a file, completely or not at all, or to standard output."""
    # Slow to import, and not needed for tables.
    from syncswitch.storage.export.tables import beginnings

    if output is None:
        write(sys.stdout.buffer)
        return
    with whole_file(output, replaces=beginnings()) as file:
        write(file)
    print_note(f"{what} written to {output}")
