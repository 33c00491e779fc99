"""What a trainer has compiled, kept for the next one: that takes longer than a small run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

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
    """A workload as far as gradients and tests depend on it, and how many are computed at once."""

    workload: Workload
    at_once: int


class Compiled(Protocol):
    """What a trainer leaves.

    Attributes:
        computation: What it computes, one run at a time.
    """

    computation: Computation

    def close(self) -> None:
        """Ends its threads."""


def computation(workload: Workload, at_once: int) -> Computation:
    """What trainers have in common where one can go on with what another has compiled."""
    return Computation(replace(workload, **_NOT_COMPUTED), at_once)


class _Place:
    """Has room for what one trainer left: two of them may not fit into the memory."""

    def __init__(self) -> None:
        self._left: Compiled | None = None

    def take(self, wanted: Computation) -> Compiled | None:
        left, self._left = self._left, None
        if left is None or left.computation == wanted:
            return left
        left.close()
        return None

    def leave(self, compiled: Compiled | None) -> None:
        if self._left is not None:
            self._left.close()
        self._left = compiled


_place: ContextVar[_Place | None] = ContextVar("_place", default=None)


@contextmanager
def kept_for_the_next() -> Iterator[None]:
    """Meanwhile the next trainer of this thread may take over what the last one compiled."""
    if _place.get() is not None:
        yield  # who is around this one keeps it longer
        return
    place = _Place()
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)
        place.leave(None)


def take(wanted: Computation) -> Any:
    """What was left for this, and now belongs to who takes it; None where nothing was."""
    place = _place.get()
    return None if place is None else place.take(wanted)


def leave(compiled: Compiled) -> None:
    """Leaves it to the next one; closes it where there is none."""
    place = _place.get()
    if place is None:
        compiled.close()
    else:
        place.leave(compiled)
