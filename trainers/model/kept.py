"""Compiled computations, kept for the next trainer: compiling takes longer than a small run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

from syncswitch.trainers.job.workload import Workload

_NOT_COMPUTED: dict[str, Any] = {
    "total_worker_steps": 1,
    "learning_rate": 1.0,
    "evaluation_interval_worker_steps": 1,
    "momentum": 0.0,
    "learning_rate_boundaries": (),
    "optimizer": None,
    "batch_after_switch": "same",
    "momentum_after_switch": "same",
    "momentum_stage_worker_steps": None,
    "largest_scaling": None,
    "callbacks": None,
}


class Computation(NamedTuple):
    """The fields of a workload that its gradients and tests depend on, and their number at once."""

    workload: Workload
    at_once: int


def computation(workload: Workload, at_once: int) -> Computation:
    """Returns a workload's computation; trainers with equal ones can share what is compiled."""
    return Computation(replace(workload, **_NOT_COMPUTED), at_once)


# What a trainer has compiled, with its `computation` and a method `close`; it serves one run at a
# time. There is at most one: two of them may not fit into the memory.
_left: ContextVar[list[Any] | None] = ContextVar("_left", default=None)


@contextmanager
def kept_for_the_next() -> Iterator[None]:
    """Lets the next trainer of this thread take over the last one's compiled computation."""
    if _left.get() is not None:
        yield  # the outer context keeps it longer
        return
    left: list[Any] = []
    token = _left.set(left)
    try:
        yield
    finally:
        _left.reset(token)
        _close(left)


def take(wanted: Computation) -> Any:
    """Takes over what was left if it computes this; returns None otherwise."""
    left = _left.get()
    if left and left[0].computation == wanted:
        return left.pop()
    _close(left or [])
    return None


def leave(compiled: Any) -> None:
    """Leaves a computation to the next trainer; closes it outside of `kept_for_the_next`."""
    left = _left.get()
    if left is None:
        compiled.close()
        return
    _close(left)
    left.append(compiled)


def _close(left: list[Any]) -> None:
    while left:
        left.pop().close()
