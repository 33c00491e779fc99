"""Output of the command lines: lines, tables, JSON, progress bars and exit statuses.

Light at import: rich is imported when something is drawn.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# A table that is piped into a file or another program has no terminal to take its width from.
_WIDTH_WITHOUT_TERMINAL = 120

# Control characters but for tabs and ends of lines, and those that turn the direction of writing.
_STEERING = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"


def printable(text: str) -> str:
    """A text of somebody else's without the characters that would steer a terminal."""
    return re.sub(_STEERING, "?", text)


def echo(text: str = "") -> None:
    """A line on standard output."""
    click.echo(printable(text))


def print_note(message: str) -> None:
    """A line on standard error about what goes on; nothing fails for who does not hear it."""
    with suppress(OSError):
        click.echo(printable(message), err=True)


def print_error(message: str) -> None:
    """One line on standard error, whatever the message holds."""
    print_note(f"error: {' '.join(message.split())}")


def print_json(value: Any) -> None:
    """A value on standard output, for programs."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def print_text(text: str) -> None:
    """Sentences on standard output, wrapped between words where it is a terminal."""
    if sys.stdout.isatty():
        rich_console().print(text, markup=False, highlight=False)
    else:
        echo(text)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], prose: str | None = None
) -> None:
    """A table on standard output; a cell that is too long goes on in the next line.

    Args:
        columns: The first one has names, the others have values.
        rows: A cell for each column.
        prose: A further column with words.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for position, column in enumerate(columns):
        is_text = position == 0 or column == prose
        table.add_column(column, justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    rich_console().print(table, markup=False)


Row = Sequence[tuple[str, str]]
"""Each cell of a row: the title of its column, and its text."""


def print_rows(
    rows: Sequence[Row], optional: Collection[str] = (), prose: str | None = None
) -> None:
    """A table of rows that name their columns.

    Args:
        rows: At least one, all with the same columns.
        optional: Columns that are left out where no row has anything but `-` in them.
        prose: The column with words.
    """
    titles = [title for title, _ in rows[0]]
    shown = [
        number
        for number, title in enumerate(titles)
        if title not in optional or any(row[number][1] != "-" for row in rows)
    ]
    cells = [[row[number][1] for number in shown] for row in rows]
    print_table([titles[number] for number in shown], cells, prose=prose)


def finite(value: float) -> float | None:
    """A value for JSON, which has no infinity: what is never paid back is null."""
    return value if math.isfinite(value) else None


def rich_console(*, stderr: bool = False) -> Console:
    """Draws on standard output or standard error, with nothing that steers a terminal."""
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        def render(self, *given: Any, **named: Any) -> Any:
            for segment in super().render(*given, **named):
                text, style, control = segment
                yield segment if control else Segment(printable(text), style)

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_WITHOUT_TERMINAL
    return PrintableConsole(stderr=stderr, width=width, highlight=False, soft_wrap=False)


def progress_bars(console: Console) -> Progress:
    """Bars with the time that remains; they disappear at the end."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        # A name may hold brackets, which are not meant for rich.
        TextColumn("{task.description}", markup=False),
        # Narrow enough that 80 columns hold the whole line.
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        # Over runs that take minutes; rich's default looks at the last 30 seconds alone.
        speed_estimate_period=3600.0,
    )
