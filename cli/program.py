"""The entry points of both programs: an interrupt ends them with one line, whenever it comes.

Light at import: an interrupt before `run_program` still shows a traceback.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

from syncswitch.cli.console import EXIT_INTERRUPTED

_LINE = b"error: interrupted\n"
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

    The first interrupt raises `KeyboardInterrupt` in the program, which then ends in order.
    Meanwhile another one within a second counts as the same; a later one ends it at once.
    """
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
        raise
    sys.exit(0)


class _Interrupts:
    """Handles SIGINT for a program, unless its parent ignores the signal."""

    def __init__(self) -> None:
        self.is_loaded = False
        self.status: int | None = None
        self._first_seconds: float | None = None
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            # Runs last at exit: no Python handler runs after it.
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)

    def leave(self) -> NoReturn:
        """Ends at once; the child processes notice, and end as well."""
        terminal = _SHOW_CURSOR if os.isatty(2) else b""
        os.write(2, terminal + _LINE)
        os._exit(EXIT_INTERRUPTED)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.status is not None:
            # The program is over; only the interpreter is still shutting down.
            os._exit(self.status)
        if not self.is_loaded:
            self.leave()
        now = time.monotonic()
        if self._first_seconds is None:
            self._first_seconds = now
            raise KeyboardInterrupt
        if now - self._first_seconds >= _AGAIN_SECONDS:
            self.leave()
