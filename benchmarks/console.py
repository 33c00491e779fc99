"""Shared parts of the benchmarks: options from their defaults, tables, and a time limit."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from rich.table import Table


def parser(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """A parser with options of the types of these defaults.

    Args:
        description: Describes the benchmark.
        defaults: `worker_steps=100` for `--worker-steps`; a list for an option with several values,
            a type for one without a default, and `False` for a flag.
    """
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            made.add_argument(option, action="store_true")
        elif isinstance(default, list):
            made.add_argument(option, type=type(default[0]), nargs="+", default=default)
        elif isinstance(default, type):
            made.add_argument(option, type=default)
        else:
            made.add_argument(option, type=type(default), default=default)
    return made


def new_table(*columns: str, left: int = 1, **style: Any) -> Table:
    """A table whose first columns are texts, and whose others are figures."""
    made = Table(**style)
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number < left else "right", no_wrap=True)
    return made


@contextmanager
def at_most(seconds: float, what: str = "the benchmark") -> Iterator[None]:
    """Ends this process, and all processes that it has started, after a time limit.

    An exception would not do, as TensorFlow's own code may be what hangs.

    Args:
        seconds: The limit, many times the usual duration.
        what: What takes so long, for the message.
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
