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

    _round_steps = 1
    _least_joined = 1

    def __init__(self, workers: Iterable[int]) -> None:
        super().__init__(workers)
        # The members of this round: how many steps each still has to do, and who has done them.
        self._left: dict[int, int] = {}
        self._arrived: set[int] = set()

    @override
    def start(self) -> Release:
        return self._next_round()

    def on_push(self, worker: int, now_seconds: float) -> Release:
        if worker not in self.active:
            return NOBODY
        if worker not in self._left:
            raise ValueError(f"worker {worker} has no step under way in this round")
        self._left[worker] -= 1
        if self._left[worker] > 0:
            return Release((worker,))
        del self._left[worker]
        self._arrived.add(worker)
        return self._next_round_if_over()

    def add(self, worker: int) -> Release:
        self.active.add(worker)
        return self._next_round_if_over()

    def remove(self, worker: int) -> Release:
        self.active.discard(worker)
        self._left.pop(worker, None)
        return self._next_round_if_over()

    def _next_round_if_over(self) -> Release:
        return NOBODY if self._left else self._next_round()

    def _is_joined(self) -> bool:
        """Whether the work of the round that is over is joined."""
        return len(self._arrived) >= self._least_joined

    def _next_round(self) -> Release:
        groups = (tuple(sorted(self._arrived)),) if self._is_joined() else ()
        self._arrived = set()
        self._left = dict.fromkeys(self.active, self._round_steps)
        return Release(tuple(sorted(self.active)), groups)
