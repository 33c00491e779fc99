"""Bulk synchronous parallel: everybody waits for everybody."""

from __future__ import annotations

from collections.abc import Iterable

from syncswitch.trainers.protocols.base import SyncProtocol

__all__ = ["BSP"]


class BSP(SyncProtocol):
    """Nobody is released until all members of the round have pushed, then all are.

    A worker that joins during a round takes part from the next one on, so that the number of
    gradients in an update is known when the round starts.
    """

    name = "bsp"
    aggregates = True

    def __init__(self, workers: Iterable[int]) -> None:
        super().__init__(workers)
        self._outstanding: set[int] = set()

    def start(self) -> list[int]:
        """Starts the first round with all workers."""
        return self._next_round()

    def on_push(self, worker: int, now_seconds: float) -> list[int]:
        """Releases everybody when `worker` was the last one of the round.

        The late push of a worker that was removed is ignored.
        """
        if worker not in self.active:
            return []
        if worker not in self._outstanding:
            raise ValueError(f"worker {worker} has no step under way in this round")
        self._outstanding.discard(worker)
        return [] if self._outstanding else self._next_round()

    def add(self, worker: int) -> list[int]:
        """Admits `worker` to the next round, which starts now if nobody is at work."""
        self.active.add(worker)
        return [] if self._outstanding else self._next_round()

    def remove(self, worker: int) -> list[int]:
        """Releases the others when only `worker` was missing."""
        self.active.discard(worker)
        if worker not in self._outstanding:
            return []
        self._outstanding.discard(worker)
        return [] if self._outstanding else self._next_round()

    def _next_round(self) -> list[int]:
        self._outstanding = set(self.active)
        return sorted(self.active)
