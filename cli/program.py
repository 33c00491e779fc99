"""The entry points of both programs: a signal ends them with one line, whenever it comes.

Light at import: an interrupt before `run_program` still shows a traceback.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

from syncswitch.cli.console import EXIT_INTERRUPTED

_LINE = b"error: interrupted\n"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR = b"\x1b[?25h"
# A held key repeats faster than this; whoever presses it again later does not want to wait.
_AGAIN_SECONDS = 1.0


def run(prog_name: str | None = None) -> NoReturn:
    """The program `syncswitch-run`."""
    run_program(lambda: import_module("syncswitch.cli.run.main").main, prog_name)


def search(prog_name: str | None = None) -> NoReturn:
    """The program `syncswitch-search`."""
    run_program(lambda: import_module("syncswitch.cli.search.main").main, prog_name)


def run_program(load: Callable[[], Callable[..., Any]], prog_name: str | None = None) -> NoReturn:
    """Imports a program and runs it.

    The first interrupt, or signal that would end it, raises `KeyboardInterrupt` in the program,
    which then ends in order. Meanwhile another one within a second counts as the same; a later one
    ends it at once.
    """
    _open_closed_streams()
    interrupts = _Interrupts()
    try:
        program = load()
        interrupts.is_loaded = True
        program(prog_name=prog_name)
    except KeyboardInterrupt:
        # It came before the program could handle it.
        interrupts.leave()
    except SystemExit as end:
        interrupts.status = end.code if isinstance(end.code, int) else 0
        if interrupts.status == EXIT_INTERRUPTED:
            sys.exit(interrupts.exit_status)
        raise
    sys.exit(0)


def _open_closed_streams() -> None:
    """Makes sure that no output that cannot be written ends the program.

    A standard stream that is closed leads nowhere, or the next file would get its number, and what
    is printed. A standard error that fails later, such as a terminal that has gone, is passed over:
    it shows progress and logs.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (until the end)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _StandardError(
            sys.stderr.detach(), sys.stderr.encoding, "backslashreplace", line_buffering=True
        )


class _StandardError(io.TextIOWrapper):
    """Standard error, which may be gone."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


class _Interrupts:
    """Handles what ends a program, unless its parent ignores the signal."""

    def __init__(self) -> None:
        self.is_loaded = False
        self.status: int | None = None
        self.exit_status = EXIT_INTERRUPTED
        self._first_seconds: float | None = None
        for number in _SIGNALS:
            if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
                signal.signal(number, self._handle)
                # Runs last at exit: no Python handler runs after it.
                atexit.register(signal.signal, number, signal.SIG_IGN)

    def leave(self) -> NoReturn:
        """Ends at once; the child processes notice, and end as well."""
        terminal = _SHOW_CURSOR if os.isatty(2) else b""
        with suppress(OSError):
            os.write(2, terminal + _LINE)
        os._exit(self.exit_status)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.status is not None:
            # The program is over; only the interpreter is still shutting down.
            os._exit(self.status)
        if self._first_seconds is None:
            self.exit_status = 128 + number  # as a shell says it
        if not self.is_loaded:
            self.leave()
        now = time.monotonic()
        if self._first_seconds is None:
            self._first_seconds = now
            raise KeyboardInterrupt
        if now - self._first_seconds >= _AGAIN_SECONDS:
            self.leave()
