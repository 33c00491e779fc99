"""Output of the command lines: lines, tables, JSON, progress bars and exit statuses.

Light at import: rich is imported when something is drawn.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click

from syncswitch.cli.words import in_options
from syncswitch.storage.errors import STEERING, ErrorCode, Said
from syncswitch.trainers.trainer import Observer, Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from syncswitch.storage.records.job import ScheduledJob
    from syncswitch.storage.records.trial import Evaluation, RunEvent

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# A run that prints more often is no more interesting.
_QUIET_SECONDS = 30.0
# The width of a table that goes to a file or another program.
_WIDTH_WITHOUT_TERMINAL = 120


def printable(text: str) -> str:
    """Replaces the characters of an untrusted text that would control the terminal."""
    return STEERING.sub("?", text)


def echo(text: str = "") -> None:
    """Prints a line on standard output."""
    click.echo(printable(text))


def print_note(message: Said) -> None:
    """Prints a line on standard error, if that is still open."""
    with suppress(OSError):
        click.echo(printable(in_options(message)), err=True)


def print_error(message: Said) -> None:
    """Prints a message on standard error as one line, even if it has several."""
    print_note(f"error: {' '.join(in_options(message).split())}")


def failure_document(message: Said, code: ErrorCode, parameters: Sequence[str]) -> dict[str, Any]:
    """Why a command has failed, for `--json`."""
    text = " ".join(in_options(message).split())
    return {"code": code, "message": printable(text), "parameters": list(parameters)}


def print_failure(message: Said, code: ErrorCode, parameters: Sequence[str] = ()) -> None:
    """Prints on standard output, if that is still open, why a command that says JSON has failed."""
    with suppress(OSError):
        print_json({"error": failure_document(message, code, parameters)})


def print_json(value: Any) -> None:
    """Prints a value on standard output as JSON."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def print_text(text: str) -> None:
    """Prints sentences on standard output, wrapped between words on a terminal."""
    if sys.stdout.isatty():
        rich_console().print(text, markup=False, highlight=False)
    else:
        echo(text)


Row = Sequence[tuple[str, str]]
"""The cells of a row: the title of the column, and the text."""


def table_of(
    rows: Sequence[Row], optional: Collection[str] = (), prose: str | None = None
) -> Table:
    """A table of one or more rows that name their columns; a long cell goes on in the next line.

    The first column and `prose` are left-aligned, the others are right-aligned. The `optional` ones
    are left out if all their cells are `-`.
    """
    from rich import box
    from rich.table import Table

    titles = [title for title, _ in rows[0]]
    shown = [
        number
        for number, title in enumerate(titles)
        if title not in optional or any(row[number][1] != "-" for row in rows)
    ]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number in shown:
        is_text = number == 0 or titles[number] == prose
        justify: Literal["left", "right"] = "left" if is_text else "right"
        table.add_column(titles[number], justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(printable(row[number][1]) for number in shown))
    return table


def print_rows(
    rows: Sequence[Row], optional: Collection[str] = (), prose: str | None = None
) -> None:
    """Prints a table on standard output; see `table_of`."""
    rich_console().print(table_of(rows, optional, prose), markup=False)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Prints names with their values, which are wrapped on a terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for name, value in fields:
        lines = textwrap.wrap(
            value,
            width,
            initial_indent=f"{name:<12} ",
            subsequent_indent=" " * 13,
            break_on_hyphens=False,
        )
        echo("\n".join(lines))


def finite(value: float) -> float | None:
    """Converts a value for JSON, which has no infinity: that becomes null."""
    return value if math.isfinite(value) else None


def rich_console(*, stderr: bool = False) -> Console:
    """A console on standard output or standard error that prints no control characters."""
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


@contextmanager
def progress_display() -> Iterator[tuple[Callable[[str], None], Progress | None]]:
    """What writes lines, and progress bars below them on a terminal."""
    if not sys.stderr.isatty():
        yield print_note, None
        return
    with progress_bars(rich_console(stderr=True)) as bars:
        yield partial(bars.console.print, markup=False), bars


class RunProgress(Observer):
    """Shows how far a run is: by a bar of its own, or a line after each tenth where there are none.

    Quick tenths are passed over, so that a short run says nothing. All its lines begin with
    `begin`, and only events are told unless it `has_lines`.
    """

    def __init__(
        self,
        identity: ScheduledJob,
        title: str,
        write: Callable[[str], None],
        bars: Progress | None = None,
        begin: str = "",
        *,
        has_lines: bool = True,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identity, self._title, self._begin = identity, title, begin
        self._write, self._bars, self._has_lines = write, bars, has_lines and bars is None
        self._seconds = seconds
        self._began = self._last = seconds()
        self._next_step = 1.0
        self._bar = None if bars is None else bars.add_task(title, total=self._total)

    @property
    def _total(self) -> int:
        return self._identity.total_worker_steps

    def on_progress(self, worker_step: int) -> None:
        self._update(completed=worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        metric = self._identity.metric
        value = f"{metric.name} {metric.text(evaluation.accuracy)}"
        self._update(description=f"{self._title}, {value}")
        if self._has_lines:
            self._tell_tenth(evaluation.worker_step, value)
        return Verdict.CONTINUE

    def _tell_tenth(self, step: int, value: str) -> None:
        from syncswitch.searcher.words import duration_text

        now, total = self._seconds(), self._total
        is_early = step < self._next_step or now < self._last + _QUIET_SECONDS
        if is_early or not step < total:
            return
        self._last, self._next_step = now, (10 * step // total + 1) * total / 10
        left = duration_text((now - self._began) * (total - step) / step)
        place = f"{self._identity.step_noun} {step:,} of {total:,}"
        self._write(f"{self._begin}{place}, {value}, about {left} left")

    def on_event(self, event: RunEvent) -> None:
        from syncswitch.trainers.run.record import event_line, is_remarkable

        if is_remarkable(event):
            self._write(f"{self._begin}{event_line(event, self._identity.step_noun)}")

    def close(self) -> None:
        """Takes the bar away."""
        if self._bars is not None and self._bar is not None:
            self._bars.remove_task(self._bar)

    def _update(self, **changes: Any) -> None:
        if self._bars is not None and self._bar is not None:
            self._bars.update(self._bar, **changes)


def progress_bars(console: Console) -> Progress:
    """Progress bars with the time left; they disappear at the end."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        # A name may contain brackets, which are not markup.
        TextColumn("{task.description}", markup=False),
        # Narrow enough for the whole line to fit into 80 columns.
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        # Runs take minutes; rich looks at the last 30 seconds only by default.
        speed_estimate_period=3600.0,
    )
