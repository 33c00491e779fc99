"""What has become of a process of this machine."""

from __future__ import annotations

import signal
from contextlib import suppress

import psutil

from syncswitch.trainers.cluster.members.engine import Condition, Life

# A process with threads may be a zombie for a while before its end can be waited for.
_LIVES = {
    psutil.STATUS_STOPPED: Life.STOPPED,
    psutil.STATUS_ZOMBIE: Life.DEAD,
    psutil.STATUS_DEAD: Life.DEAD,
}


def condition_of(process_id: int, exit_code: int | None) -> Condition:
    """Condition of a child.

    Args:
        process_id: Its own.
        exit_code: As `subprocess` has it: negative for a signal, None while it has not ended.
    """
    if exit_code is not None:
        return Condition(Life.DEAD, _ended(exit_code))
    try:
        status = psutil.Process(process_id).status()
    except psutil.Error:
        return Condition(Life.DEAD)
    return Condition(_LIVES.get(status, Life.RUNNING))


def _ended(exit_code: int) -> str:
    with suppress(ValueError):
        return f"died of {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"
