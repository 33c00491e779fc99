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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from syncswitch.cli.console import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    print_error,
    print_note,
)
from syncswitch.storage.errors import SyncSwitchError, UserError, one_line, shortened

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of both programs: `-h` is help too, and its lines have at most 100 characters."""

# click shortens a command's first sentence to this; no sentence is as long.
_LONGEST_SENTENCE = 1000

# Errors of the file system that can occur wherever a file is opened: exit status and advice.
_FILE_ERRORS = {
    errno.ENAMETOOLONG: (EXIT_USAGE, "give a shorter name"),
    errno.EROFS: (EXIT_USAGE, "name a place that can be written"),
    errno.ENOSPC: (EXIT_FAILED, "free some disk space, or name another place"),
    errno.EDQUOT: (EXIT_FAILED, "free some disk space, or name another place"),
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
        sys.exit(_status_of(call, is_debugging="--debug" in words))


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
        gc.disable()  # modules are no garbage: to look for some takes a tenth of a short command
        try:
            imported = importlib.import_module(f"{self._package}.{module}")
        finally:
            gc.enable()
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


def _status_of(call: Callable[[], Any], *, is_debugging: bool) -> int:
    try:
        status = call()
        sys.stdout.flush()
        return status if isinstance(status, int) else EXIT_OK
    except click.ClickException as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            print_note(error.format_message())
        else:
            print_error(_usage_message(error))
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        print_error("interrupted")
        return EXIT_INTERRUPTED
    except SystemExit:
        raise
    except BaseException as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            # The reader has gone, as with `| head`; Python's own flush at exit would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return EXIT_FAILED
        if is_debugging:
            traceback.print_exc()
        if isinstance(error, OSError) and error.errno in _FILE_ERRORS:
            status, advice = _FILE_ERRORS[error.errno]
            print_error(f"{error.strerror}: {shortened(repr(str(error.filename or '')))}; {advice}")
            return status
        if isinstance(error, SyncSwitchError):
            print_error(error)
        else:
            hint = "" if is_debugging else "; --debug shows where"
            print_error(f"unexpected {one_line(error)}{hint}")
        return EXIT_USAGE if isinstance(error, UserError) else EXIT_FAILED


def _usage_message(error: click.ClickException) -> str:
    message = shortened(error.format_message())
    context = getattr(error, "ctx", None)
    if context is not None:
        message = f"{message.rstrip('.')} (see {context.command_path} --help)"
    return message
