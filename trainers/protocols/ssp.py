"""Stale synchronous parallel: no worker runs too far ahead of the slowest."""

from __future__ import annotations

from collections.abc import Iterable

from syncswitch.trainers.protocols.base import NOBODY, Exchange, Release, SyncProtocol


class SSP(SyncProtocol):
    """A worker goes on unless it is too many steps ahead of the slowest one.

    Source: Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter
    Server, NeurIPS 2013. A lead of 0 is a barrier per step, but differs from BSP by one update per
    worker instead of one per round; an unlimited lead is ASP.

    The paper does not cover workers that come and go. Here a worker that joins or comes back is
    level with the slowest one, and workers that leave no longer count.

    Args:
        lead_steps: s, the largest lead with which a worker may start a step.
    """

    name = "ssp"
    usage = "ssp:LEAD"
    exchange = Exchange.PUSH
    least_workers = 2
    number = ("lead_steps", "LEAD", 0)

    def __init__(self, workers: Iterable[int], lead_steps: int) -> None:
        super().__init__(workers)
        self._lead_steps = lead_steps
        self._steps = dict.fromkeys(self.active, 0)
        self._waiting: set[int] = set()

    def on_push(self, worker: int, now_seconds: float) -> Release:
        if worker not in self.active:
            return NOBODY
        self._arrive(worker)
        return self._wake()

    def add(self, worker: int) -> Release:
        if worker in self.active:
            return NOBODY
        self.active.add(worker)
        self._steps[worker] = self._slowest_steps()
        return Release((worker,))

    def remove(self, worker: int) -> Release:
        self.active.discard(worker)
        self._steps.pop(worker, None)
        self._waiting.discard(worker)
        return self._wake()

    def _arrive(self, worker: int) -> None:
        if worker in self._waiting:
            raise ValueError(f"worker {worker} has no step under way")
        self._steps[worker] += 1
        self._waiting.add(worker)

    def _wake(self) -> Release:
        most = self._slowest_steps() + self._lead_steps
        awake = sorted(worker for worker in self._waiting if self._steps[worker] <= most)
        self._waiting.difference_update(awake)
        return Release(tuple(awake))

    def _lead(self, worker: int) -> int:
        return self._steps[worker] - self._slowest_steps()

    def _slowest_steps(self) -> int:
        return min(self._steps.values(), default=0)
