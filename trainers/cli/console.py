"""What the two command lines share: options, one-line errors, output and progress bars.

Light at import: rich is imported when something is drawn.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import click

from syncswitch.storage.database.defaults import DEFAULT_URL as DEFAULT_STORAGE_URL
from syncswitch.storage.database.defaults import ENVIRONMENT_VARIABLE as STORAGE_VARIABLE
from syncswitch.storage.errors import SyncSwitchError, UserError, one_line
from syncswitch.trainers.cli.completion import complete_protocols
from syncswitch.trainers.cli.program import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = [
    "DEFAULT_STORAGE_URL",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_OK",
    "EXIT_USAGE",
    "PROTOCOLS_HELP",
    "STORAGE_VARIABLE",
    "FiniteRange",
    "ProgramCommand",
    "ProgramGroup",
    "common_options",
    "debug_option",
    "echo",
    "json_option",
    "print_error",
    "print_json",
    "print_note",
    "print_table",
    "print_text",
    "printable",
    "progress_bars",
    "protocols_option",
    "stderr_console",
    "stderr_is_terminal",
    "stdout_console",
    "storage_option",
    "workers_option",
]

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2

PROTOCOLS_HELP = (
    "Protocols before and after the switch: asp, bsp, dssp:3-15, ds-sync:2, local-sgd:8, ssp:3."
)

# A table that is piped into a file or another program has no terminal to take its width from.
_WIDTH_WITHOUT_TERMINAL = 120

# click 8.1 has no such error: it prints the help and exits with 0.
_NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", ())

# Control characters but for tabs and ends of lines, and those that turn the direction of writing.
_STEERING = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"

# More than any cluster has; every column and every float takes it.
_MOST_WORKERS = 100_000

_debug: ContextVar[bool] = ContextVar("debug", default=False)
_F = TypeVar("_F", bound=Callable[..., Any])


class _Program(click.Command):
    """Ends with a status and one line per error, whatever goes wrong."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the program; the number that a command returns is the exit status."""

        def call() -> Any:
            return super(_Program, self).main(
                args, prog_name, complete_var, standalone_mode=False, **extra
            )

        if not standalone_mode:
            return call()
        for word in sys.argv[1:] if args is None else args:
            if any("\ud800" <= letter <= "\udfff" for letter in word):
                print_error(f"the argument {word!a} is not UTF-8 text; write it as such")
                sys.exit(EXIT_USAGE)
        sys.exit(_status_of(call))


class FiniteRange(click.FloatRange):
    """A number in a range; unlike its base it refuses NaN, which is in none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not in the range {self._describe_range()}.", param, ctx)
        return number


class ProgramCommand(_Program):
    """A program of one command."""


class ProgramGroup(_Program, click.Group):
    """A program of several commands."""


def _status_of(call: Callable[[], Any]) -> int:
    token = _debug.set(False)
    try:
        status = call()
        sys.stdout.flush()
        return status if isinstance(status, int) else EXIT_OK
    except click.ClickException as error:
        if isinstance(error, _NO_ARGUMENTS):
            echo(error.format_message(), err=True)
        else:
            print_error(_usage_message(error))
        return EXIT_USAGE
    except UserError as error:
        _trace()
        print_error(str(error))
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        print_error("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except SyncSwitchError as error:
        _trace()
        print_error(str(error))
        return EXIT_FAILED
    except SystemExit:
        raise
    except BaseException as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            return _reader_left()
        _trace()
        hint = "" if _debug.get() else "; --debug shows where"
        print_error(f"unexpected {one_line(error)}{hint}")
        return EXIT_FAILED
    finally:
        _debug.reset(token)


def _usage_message(error: click.ClickException) -> str:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if context is not None:
        message = f"{message.rstrip('.')} (see {context.command_path} --help)"
    return message


def _reader_left() -> int:
    # As after `| head`: nobody reads on, and Python's own flush at exit would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return EXIT_FAILED


def _trace() -> None:
    if _debug.get():
        traceback.print_exc()


def print_error(message: str) -> None:
    """One line on standard error, whatever the message holds."""
    echo(f"error: {' '.join(message.split())}", err=True)


def print_note(message: str) -> None:
    """A line on standard error about what goes on."""
    echo(message, err=True)


def echo(text: str = "", *, err: bool = False) -> None:
    """A line on standard output or standard error, with nothing that steers a terminal."""
    click.echo(printable(text), err=err)


def printable(text: str) -> str:
    """A text of somebody else's without the characters that would steer a terminal."""
    return re.sub(_STEERING, "?", text)


def print_json(value: Any) -> None:
    """A value on standard output, for programs."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def print_text(text: str) -> None:
    """Sentences on standard output, wrapped between words where it is a terminal."""
    if sys.stdout.isatty():
        stdout_console().print(text, markup=False, highlight=False)
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
    stdout_console().print(table, markup=False)


def storage_option(function: _F) -> _F:
    """`--storage`, the database."""
    return click.option(
        "--storage",
        "storage_url",
        metavar="URL",
        envvar=STORAGE_VARIABLE,
        default=DEFAULT_STORAGE_URL,
        show_default=True,
        show_envvar=True,
        help="Database of trials and policies: a SQLite file or a PostgreSQL server.",
    )(function)


def json_option(function: _F) -> _F:
    """`--json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the result as JSON instead of a table."
    )(function)


def debug_option(function: _F) -> _F:
    """`--debug`; the command itself is not told."""

    def remember(_: click.Context, __: click.Parameter, value: bool) -> None:
        if value:
            _debug.set(True)

    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=remember,
        help="Show the traceback of an error.",
    )(function)


def common_options(function: _F) -> _F:
    """`--storage`, `--json` and `--debug`."""
    return storage_option(json_option(debug_option(function)))


def workers_option(default: int | None, text: str | None = None) -> Callable[[_F], _F]:
    """`--workers`; without a default it narrows a choice, unless `text` says what else it does."""
    text = text or (
        "Workers in the cluster." if default else "Only policies for this many workers."
    )
    return click.option(
        "--workers",
        type=click.IntRange(min=1, max=_MOST_WORKERS),
        default=default,
        show_default=default is not None,
        help=text,
    )


def protocols_option(default: str | None, text: str | None = None) -> Callable[[_F], _F]:
    """`--protocols`; as `workers_option`."""
    narrowing = "Only policies for these. Protocols before and after the switch."
    text = text or (PROTOCOLS_HELP if default else narrowing)
    return click.option(
        "--protocols",
        metavar="FIRST,SECOND",
        shell_complete=complete_protocols,
        default=default,
        show_default=default is not None,
        help=text,
    )


def stdout_console() -> Console:
    """For results."""
    return _console(stderr=False)


def stderr_console() -> Console:
    """For progress and logs."""
    return _console(stderr=True)


def stderr_is_terminal() -> bool:
    """Whether somebody watches, so that bars may move."""
    return sys.stderr.isatty()


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


def _console(*, stderr: bool) -> Console:
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
