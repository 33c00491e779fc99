"""Processes that tests wait for, and other things."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable

import psutil


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until something holds; fails if that takes longer."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def exit_code_of(work: Callable[[], object]) -> int | None:
    """Does a work in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode


def has_ended(process_id: int) -> bool:
    """Also where nobody has asked how."""
    try:
        return psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
