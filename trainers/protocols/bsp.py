"""Bulk synchronous parallel: everybody waits for everybody."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from syncswitch.trainers.protocols.base import NOBODY, Exchange, Release, SyncProtocol


class BSP(SyncProtocol):
    """Nobody is released until all members of the round have pushed, then all are.

    A worker that joins during a round takes part from the next one on, so that the number of
    gradients in an update is known when the round starts.
    """

    name = "bsp"
    usage = "bsp"
    exchange = Exchange.ROUND

    _least_joined = 1

    def __init__(self, workers: Iterable[int]) -> None:
        super().__init__(workers)
        # The members of this round that are at a step of it, and those that have done theirs.
        self._at_work: set[int] = set()
        self._arrived: set[int] = set()

    @override
    def start(self) -> Release:
        return self._next_round()

    def on_push(self, worker: int, now_seconds: float) -> Release:
        if worker not in self.active:
            return NOBODY
        if worker not in self._at_work:
            raise ValueError(f"worker {worker} has no step under way in this round")
        if self._goes_on(worker):
            return Release((worker,))
        self._at_work.discard(worker)
        self._arrived.add(worker)
        return self._next_round_if_over()

    def add(self, worker: int) -> Release:
        self.active.add(worker)
        return self._next_round_if_over()

    def remove(self, worker: int) -> Release:
        self.active.discard(worker)
        self._at_work.discard(worker)
        return self._next_round_if_over()

    def _goes_on(self, worker: int) -> bool:
        """Whether a worker that has finished a step has another one in this round."""
        return False

    def _is_over(self) -> bool:
        """Whether nobody is waited for any more."""
        return not self._at_work

    def _is_joined(self) -> bool:
        """Whether the work of the round that is over is joined."""
        return len(self._arrived) >= self._least_joined

    def _next_round_if_over(self) -> Release:
        return self._next_round() if self._is_over() else NOBODY

    def _next_round(self) -> Release:
        groups = (tuple(sorted(self._arrived)),) if self._is_joined() else ()
        released = self.active - self._at_work
        self._arrived, self._at_work = set(), set(self.active)
        return Release(tuple(sorted(released)), groups)
