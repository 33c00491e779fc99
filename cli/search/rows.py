"""What the commands that list rows share: WORKLOAD, --format, -o, tables that fit a screen."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import click

from syncswitch.cli.completion import complete_workload
from syncswitch.cli.console import echo, print_note, print_table
from syncswitch.searcher.words import NONE
from syncswitch.storage.errors import UserError
from syncswitch.storage.files import whole_file
from syncswitch.trainers.job.loading import normal_reference

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
    """What the database knows the workload by; None for all."""
    return None if reference is None else normal_reference(reference)


def nothing_found(reference: str | None, what: str = "search") -> str:
    """What to say where there is nothing to show."""
    of = f" of {reference}" if reference else ""
    return f"no {what}{of} here; start one with: syncswitch-search run {reference or 'WORKLOAD'}"


_Row = TypeVar("_Row")
_MOST_ROWS = 1000  # of a table that somebody reads


class Newest(Generic[_Row]):
    """The rows of a table that somebody reads: the newest thousand of all that there are.

    Args:
        rows: All, the oldest first.
    """

    def __init__(self, rows: Iterable[_Row]) -> None:
        self.rows: deque[_Row] = deque(maxlen=_MOST_ROWS)
        self._number = 0
        for row in rows:
            self.rows.append(row)
            self._number += 1

    def print_rest(self) -> None:
        """Says how to get those that are not shown, where there are such."""
        if self._number > _MOST_ROWS:
            echo(f"\nthe newest {_MOST_ROWS:,} of {self._number:,}; all of them: --format csv")


def print_rows(
    rows: Sequence[Mapping[str, str]], optional: Collection[str] = (), prose: str | None = None
) -> None:
    """A table of rows that name their columns.

    Args:
        rows: At least one; each has the text of every column.
        optional: Columns that are left out where no row has anything in them.
        prose: The column with words.
    """
    columns = [
        name for name in rows[0] if name not in optional or any(row[name] != NONE for row in rows)
    ]
    print_table(columns, [[row[name] for name in columns] for row in rows], prose=prose)


def chosen_format(
    format_name: str | None,
    output: Path | None,
    as_json: bool,
    files: str,
    only_files: Mapping[str, bool] | None = None,
) -> str:
    """The format of `--format` and `--json`.

    Args:
        format_name: As the user gave it; None for a table.
        output: The file to write; a table has none.
        as_json: Whether --json was given.
        files: The formats of files, for people.
        only_files: Other options that a table does not have, and whether each was given.

    Raises:
        UserError: They contradict each other.
    """
    if as_json and format_name not in {None, "json"}:
        raise UserError(f"--json and --format {format_name} contradict each other; give one")
    kind = "json" if as_json else format_name or "table"
    for option, is_given in {"--output": output is not None, **(only_files or {})}.items():
        if is_given and kind == "table":
            raise UserError(f"{option} goes with --format {files}; give one of them")
    return kind


def write_rows(what: str, output: Path | None, write: Callable[[BinaryIO], None]) -> None:
    """Writes rows to a file, which appears whole or not at all, or to standard output."""
    # Importing what writes files takes a while, and tables need none of it.
    from syncswitch.storage.export.tables import beginnings

    if output is None:
        write(sys.stdout.buffer)
        return
    with whole_file(output, replaces=beginnings()) as file:
        write(file)
    print_note(f"{what} written to {output}")
