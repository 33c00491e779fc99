"""Runs a program: an interrupt ends it with one line, whenever it comes.

Light at import: what comes before `run_program` cannot be interrupted in peace.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from syncswitch.cli.console import EXIT_INTERRUPTED

_LINE = b"error: interrupted\n"
_SHOW_CURSOR = b"\x1b[?25h"
# A key that is held repeats faster; whoever presses it again after this does not want to wait.
_AGAIN_SECONDS = 1.0


def run_program(load: Callable[[], Callable[..., Any]], prog_name: str | None = None) -> NoReturn:
    """Imports a program and runs it.

    The first interrupt is a `KeyboardInterrupt` for the program, which then ends in order. While it
    does so, another one within a second is taken for the same; a later one ends it at once.

    Args:
        load: Imports the program.
        prog_name: What it calls itself; None for what the user called it.
    """
    interrupts = _Interrupts()
    try:
        program = load()
        interrupts.is_loaded = True
        program(prog_name=prog_name)
    except KeyboardInterrupt:
        # Between here and the program.
        interrupts.leave()
    except SystemExit as end:
        interrupts.status = end.code if isinstance(end.code, int) else 0
        raise
    sys.exit(0)


class _Interrupts:
    """Handles SIGINT for a program, unless whoever started it has it ignored.

    Attributes:
        is_loaded: The program has begun, and may have something to put in order.
        status: That the program has ended with.
    """

    def __init__(self) -> None:
        self.is_loaded = False
        self.status: int | None = None
        self._first_seconds: float | None = None
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            # The last that is done at exit; what follows runs no handlers of Python.
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)

    def leave(self) -> NoReturn:
        """Ends at once. Processes of this one see that it is gone, and end as well."""
        terminal = _SHOW_CURSOR if os.isatty(2) else b""
        os.write(2, terminal + _LINE)
        os._exit(EXIT_INTERRUPTED)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.status is not None:
            # The program is over, and only the interpreter still clears away.
            os._exit(self.status)
        if not self.is_loaded:
            self.leave()
        now = time.monotonic()
        if self._first_seconds is None:
            self._first_seconds = now
            raise KeyboardInterrupt
        if now - self._first_seconds >= _AGAIN_SECONDS:
            self.leave()
