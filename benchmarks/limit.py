"""A limit of time, so that no benchmark hangs for ever."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


@contextmanager
def at_most(seconds: float, what: str = "the benchmark") -> Iterator[None]:
    """Ends this process, and all that it has started, where something takes longer.

    Not by an exception: what hangs may be TensorFlow's own code, and catches none.

    Args:
        seconds: Many times what it usually takes.
        what: Takes so long; for the message.
    """

    def end() -> None:
        print(f"error: {what} is not done after {seconds:g} s; ended", file=sys.stderr, flush=True)
        for process in psutil.Process().children(recursive=True):
            process.kill()
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
