"""The condition of a process of this machine, and its last words."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from syncswitch.trainers.cluster.members.engine import Condition, Life

# A process with threads may be a zombie for a while before its end can be waited for.
_LIVES = {
    psutil.STATUS_STOPPED: Life.STOPPED,
    psutil.STATUS_ZOMBIE: Life.DEAD,
    psutil.STATUS_DEAD: Life.DEAD,
}
_LINES = 5
_LONGEST_LINE = 200


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


def with_last_words(condition: Condition, log: Path) -> Condition:
    """The condition of a process that prints into this log."""
    if condition.life is not Life.DEAD:
        return condition
    return replace(condition, report=f"{condition.report or 'died'}; {tail_of_log(log)}")


def tail_of_log(log: Path) -> str:
    """The last lines of a log, shortened; ends with neither line nor full stop."""
    content = b""
    with suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        # Enough for lines of the longest letters.
        file.seek(max(0, size - _LINES * _LONGEST_LINE * 4))
        content = file.read()
    lines = content.decode(errors="replace").strip().splitlines()
    tail = " | ".join(line.strip()[:_LONGEST_LINE] for line in lines[-_LINES:]) or "nothing"
    return f"its last words: {tail}"


def _ended(exit_code: int) -> str:
    with suppress(ValueError):
        return f"died of {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"
