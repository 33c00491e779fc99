"""A program that runs one command and ends all processes that the command leaves behind.

Everything that the command starts remains a descendant of this process, even a process that starts
a new session or loses its parent, so that all of it can be found. It is ended when the command
ends, when standard input is closed, and when the process that started this program is gone, for
whatever reason. The exit status is that of the command, or 128 plus the signal that killed it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from syncswitch.trainers.parent import die_with_parent

CANNOT_START = 126  # exit status if the command cannot be started
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.05
_KILL_SECONDS = 30.0


def main(grace_seconds: float, words: Sequence[str]) -> int:
    """Runs the command to its end, or until the parent process has gone; returns its status."""
    parent = os.getppid()
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # closing standard input ends the command
    try:
        command = subprocess.Popen(
            list(words), stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_prepare
        )
    except OSError as error:
        print(f"{words[0]}: {error.strerror or error}", file=sys.stderr)
        return CANNOT_START
    status: int | None = None
    while status is None and os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _LOOK_SECONDS)
        if readable and not os.read(0, 1):
            break  # standard input was closed
        status = _reaped(command.pid)
    _end_all(grace_seconds)
    return 0 if status is None else status


def _prepare() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    die_with_parent()


def _reaped(wanted: int) -> int | None:
    """Reaps all children that have ended; returns the exit status of the wanted one."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == wanted:
                code = os.waitstatus_to_exitcode(ended[1])
    return code if code is None or code >= 0 else 128 - code


def _end_all(grace_seconds: float) -> None:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        # No descendant is left, as one that has lost its parent becomes a child. That is the usual
        # case, and looking further takes a third of this program's time.
        return
    import psutil

    def descendants() -> set[psutil.Process]:
        return set(psutil.Process().children(recursive=True))

    now = time.monotonic()
    kill_at, give_up_at = now + grace_seconds, now + grace_seconds + _KILL_SECONDS
    asked: set[psutil.Process] = set()
    while (left := descendants()) and time.monotonic() < give_up_at:
        is_over = time.monotonic() >= kill_at
        # While they are being killed, processes may still start others.
        for process in left if is_over else left - asked:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL if is_over else signal.SIGTERM)
        asked |= left
        time.sleep(0.01)
        _reaped(0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
