"""A command and the processes that it starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from syncswitch.trainers.command import guard


class GuardedCommand:
    """Starts at once, and runs until it ends or is ended; a context manager.

    A guard (see `guard`) stands between, which ends all processes of the command also where this
    one is killed.
    """

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], log: Path, grace_seconds: float
    ) -> None:
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                # By its path: the working folder is the user's, whose modules are none of its own.
                [sys.executable, guard.__file__, str(grace_seconds), *words],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    def status(self, wait_seconds: float) -> int | None:
        """Exit status, 128 and the signal where one killed it; None while it runs.

        Nothing of the command is left then.
        """
        try:
            status = self._guard.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return None
        return status if status >= 0 else 128 - status

    def end(self) -> None:
        """Ends it with everything that it started; returns when all of it is gone."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()  # that is what the guard waits for
        self._guard.wait()

    def __enter__(self) -> GuardedCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
