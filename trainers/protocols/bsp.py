"""Bulk synchronous parallel: everybody waits for everybody."""

from __future__ import annotations

from collections.abc import Iterable

from syncswitch.trainers.protocols.base import NOBODY, Exchange, Release, SyncProtocol


class BSP(SyncProtocol):
    """Nobody is released until all members of the round have pushed, then all are.

    A worker that joins during a round takes part from the next one on, so that the number of
    gradients in an update is known when the round starts.
    """

    name = "bsp"
    usage = "bsp"
    exchange = Exchange.ROUND

    def __init__(self, workers: Iterable[int]) -> None:
        super().__init__(workers)
        self._outstanding: set[int] = set()
        self._arrived: set[int] = set()

    def start(self) -> Release:
        """Starts the first round with all workers."""
        return self._next_round()

    def on_push(self, worker: int, now_seconds: float) -> Release:
        """Joins the round's gradients and releases everybody when `worker` was the last one."""
        if worker not in self.active:
            return NOBODY
        if worker not in self._outstanding:
            raise ValueError(f"worker {worker} has no step under way in this round")
        self._outstanding.discard(worker)
        self._arrived.add(worker)
        return NOBODY if self._outstanding else self._next_round()

    def add(self, worker: int) -> Release:
        """Admits `worker` to the next round, which starts now if nobody is at work."""
        self.active.add(worker)
        return NOBODY if self._outstanding else self._next_round()

    def remove(self, worker: int) -> Release:
        """Releases the others when only `worker` was missing."""
        self.active.discard(worker)
        if worker not in self._outstanding:
            return NOBODY
        self._outstanding.discard(worker)
        return NOBODY if self._outstanding else self._next_round()

    def _next_round(self) -> Release:
        groups = (tuple(sorted(self._arrived)),) if self._arrived else ()
        self._arrived = set()
        self._outstanding = set(self.active)
        return Release(tuple(sorted(self.active)), groups)
