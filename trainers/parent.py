"""Ends child processes together with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_id: int | None = None) -> None:
    """Makes the kernel kill this process when the thread that started it ends, even if stopped.

    Args:
        parent_id: The process that started it, which may have ended before this call; then this
            process is killed at once. None if unknown.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_id is not None and os.getppid() != parent_id:
        os.kill(os.getpid(), signal.SIGKILL)
