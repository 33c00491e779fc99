"""What has become of a process of this machine."""

from __future__ import annotations

import signal
from contextlib import suppress

import psutil

from syncswitch.trainers.cluster.members.engine import Condition, Life


def condition_of(process_id: int, exit_code: int | None) -> Condition:
    """Condition of a child.

    Args:
        process_id: Its own.
        exit_code: As `subprocess` has it: negative for a signal, None while it has not ended.
    """
    if exit_code is not None:
        return Condition(Life.DEAD, _ended(exit_code))
    try:
        is_stopped = psutil.Process(process_id).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return Condition(Life.DEAD)
    return Condition(Life.STOPPED if is_stopped else Life.RUNNING)


def _ended(exit_code: int) -> str:
    with suppress(ValueError):
        return f"died of {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"
