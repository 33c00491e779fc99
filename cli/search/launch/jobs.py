"""`--jobs J`: the same command in several processes, which share the search.

Whatever makes the runs, J of them are made at once: each process has a cluster of its own, claims
runs in the database as any other searcher does, and ends when the search is decided.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

import click

from syncswitch.trainers.parent import die_with_parent

_MOST_JOBS = 256
_F = TypeVar("_F", bound=Callable[..., Any])

# Tells a process that it is one of several, and not the first.
_NUMBER = "SYNCSWITCH_JOB"
# A run that is needed no longer is stopped at its next evaluation, and what it cost is recorded.
_PATIENCE_SECONDS = 30.0
_STOP_SECONDS = 20.0


def jobs_option(function: _F) -> _F:
    """`--jobs`; a further job is alone, and ends with the first one, however that ends."""

    def alone(_: click.Context, __: click.Parameter, jobs: int) -> int:
        if not is_further_job():
            return jobs
        die_with_parent()
        return 1

    return click.option(
        "--jobs",
        metavar="N",
        type=click.IntRange(1, _MOST_JOBS),
        default=1,
        show_default=True,
        is_eager=True,
        callback=alone,
        help="Number of runs at once, each on its own cluster.",
    )(function)


def is_further_job() -> bool:
    """Whether the first job of this search started this process."""
    return _NUMBER in os.environ


@contextlib.contextmanager
def shared_by(jobs: int, tell: Callable[[str], None]) -> Iterator[None]:
    """Starts the further jobs of this command, and ends them with the body.

    Each line that one of them writes is told, from a thread of its own.
    """
    processes = [_FurtherJob(number, tell) for number in range(2, jobs + 1)]
    try:
        yield
        until = time.monotonic() + _PATIENCE_SECONDS
        for process in processes:
            process.wait(until - time.monotonic())
    finally:
        for process in processes:
            process.interrupt()
        for process in processes:
            process.end()


class _FurtherJob:
    """A further process of this command."""

    def __init__(self, number: int, tell: Callable[[str], None]) -> None:
        self._number = number
        self._tell = tell
        self._is_interrupted = False
        self._process = subprocess.Popen(
            sys.orig_argv,
            env={**os.environ, _NUMBER: str(number)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Ctrl-C is for the first job, which then interrupts the others, each once.
            start_new_session=True,
        )
        assert self._process.stderr is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stderr,), daemon=True
        )
        self._reader.start()

    def wait(self, seconds: float) -> None:
        """Waits for its end, at most this long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(seconds, 0.0))

    def interrupt(self) -> None:
        """Has it give its run back and end."""
        self._is_interrupted = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Waits for its end, and kills it where that takes too long."""
        self.wait(_STOP_SECONDS)
        self._process.kill()
        self._process.wait()
        self._reader.join(1.0)

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            # That it was interrupted is no news.
            if line.strip() and not self._is_interrupted:
                self._tell(f"job {self._number}: {line.rstrip()}")
        status = self._process.wait()
        if status and not self._is_interrupted:
            how = f"with status {status}" if status > 0 else f"by {signal.Signals(-status).name}"
            self._tell(f"job {self._number} was ended {how}; the search continues without it")
