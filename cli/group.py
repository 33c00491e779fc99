"""Programs that end with an exit status and one line per error, and import commands lazily.

Light at import.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from syncswitch.cli.console import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    print_error,
    print_failure,
    print_note,
)
from syncswitch.storage.errors import (
    ErrorCode,
    Said,
    SyncSwitchError,
    UserError,
    one_line,
    shortened,
)

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of both programs: `-h` is help too, and its lines have at most 100 characters."""

# click shortens a command's first sentence to this; no sentence is as long.
_LONGEST_SENTENCE = 1000

# Errors of the file system that can occur wherever a file is opened: exit status, code and advice.
_FILE_ERRORS: dict[int, tuple[int, ErrorCode, str]] = {
    errno.ENAMETOOLONG: (EXIT_USAGE, "file-unusable", "give a shorter name"),
    errno.EROFS: (EXIT_USAGE, "file-unusable", "name a place that can be written"),
    errno.ENOSPC: (EXIT_FAILED, "disk-full", "free some disk space, or name another place"),
    errno.EDQUOT: (EXIT_FAILED, "disk-full", "free some disk space, or name another place"),
}


class ProgramCommand(click.Command):
    """A program whose commands return its exit status; None for success."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        def call() -> Any:
            return super(ProgramCommand, self).main(
                args, prog_name, complete_var, standalone_mode=False, **extra
            )

        if not standalone_mode:
            return call()
        words = sys.argv[1:] if args is None else args
        for word in words:
            if any("\ud800" <= letter <= "\udfff" for letter in word):
                print_error(f"the argument {word!a} is not UTF-8 text; type it in UTF-8")
                sys.exit(EXIT_USAGE)
        sys.exit(_status_of(call, is_debugging="--debug" in words, as_json="--json" in words))


class SubcommandGroup(click.Group):
    """A group whose `--help` shows the first sentence of each command in full."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.short_helps())

    def short_helps(self) -> list[tuple[str, str]]:
        return [
            (name, command.get_short_help_str(_LONGEST_SENTENCE))
            for name, command in sorted(self.commands.items())
        ]


class ProgramGroup(ProgramCommand, SubcommandGroup):
    """A program that imports a command when it is called; `--help` and completion import none."""

    def __init__(
        self, *args: Any, package: str, lazy: Mapping[str, tuple[str, str]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._package = package
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        with _without_collections():
            imported = importlib.import_module(f"{self._package}.{module}")
        command: click.Command = getattr(imported, attribute)
        return command

    def short_helps(self) -> list[tuple[str, str]]:
        """The name and short help of each command, without importing any."""
        return [(name, text) for name, (_, text) in self._lazy.items()]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes names of commands without importing any."""
        return [
            *(
                CompletionItem(name, help=text)
                for name, text in self.short_helps()
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]


@contextmanager
def _without_collections() -> Iterator[None]:
    """Pauses the garbage collector, which takes a tenth of a short command and finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True)
class Failure:
    """How a program fails; `parameters` have their names in Python."""

    status: int
    message: Said
    code: ErrorCode
    parameters: Sequence[str] = ()


def _status_of(call: Callable[[], Any], *, is_debugging: bool, as_json: bool) -> int:
    try:
        status = call()
        sys.stdout.flush()
        return status if isinstance(status, int) else EXIT_OK
    except (click.Abort, KeyboardInterrupt):
        print_error("interrupted")
        return EXIT_INTERRUPTED
    except SystemExit:
        raise
    except click.exceptions.NoArgsIsHelpError as error:
        print_note(error.format_message())
        return EXIT_USAGE
    except BaseException as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            # The reader has gone, as with `| head`; Python's own flush at exit would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return EXIT_FAILED
        if is_debugging and not isinstance(error, click.ClickException):
            traceback.print_exc()
        failure = failure_of(error, is_debugging=is_debugging)
        print_error(failure.message)
        if as_json:
            print_failure(failure.message, failure.code, failure.parameters)
        return failure.status


def failure_of(error: BaseException, *, is_debugging: bool = False) -> Failure:
    """How a program fails with an error."""
    if isinstance(error, click.ClickException):
        named = getattr(getattr(error, "param", None), "name", None)
        return Failure(
            EXIT_USAGE, _usage_message(error), "usage-invalid", (named,) if named else ()
        )
    if isinstance(error, SyncSwitchError):
        status = EXIT_USAGE if isinstance(error, UserError) else EXIT_FAILED
        return Failure(status, error, error.code, error.parameters)
    if isinstance(error, OSError) and error.errno in _FILE_ERRORS:
        status, code, advice = _FILE_ERRORS[error.errno]
        place = shortened(repr(str(error.filename or "")))
        return Failure(status, f"{error.strerror}: {place}; {advice}", code)
    hint = "" if is_debugging else "; --debug shows where"
    return Failure(EXIT_FAILED, f"unexpected {one_line(error)}{hint}", "unexpected")


def _usage_message(error: click.ClickException) -> str:
    message = shortened(error.format_message())
    context = getattr(error, "ctx", None)
    if context is not None:
        message = f"{message.rstrip('.')} (see {context.command_path} --help)"
    return message
