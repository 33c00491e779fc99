"""Local SGD: everybody trains a replica, and all replicas are averaged now and then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from syncswitch.trainers.protocols.base import NOBODY, Exchange, Release, SyncProtocol
from syncswitch.trainers.protocols.options import whole_number


class LocalSGD(SyncProtocol):
    """All replicas are averaged when everybody has done the steps of a period.

    Source: Lin et al., Don't Use Large Mini-Batches, Use Local SGD (arXiv 1808.07217), whose
    post-local SGD is this after a time of BSP. It is DS-Sync with one group of all workers that
    meets every `period_steps` steps.

    Nobody waits for a worker that leaves; one that joins takes part from the next period on, which
    it starts with the average.

    Args:
        workers: Who takes part at the start.
        period_steps: H, steps of each worker from one average to the next.
    """

    name = "local-sgd"
    usage = "local-sgd:STEPS"
    exchange = Exchange.REPLICA
    least_workers = 2

    def __init__(self, workers: Iterable[int], period_steps: int) -> None:
        super().__init__(workers)
        self._period_steps = period_steps
        # Of the members of this period: how many steps each of the others has to do, and who has.
        self._left: dict[int, int] = {}
        self._arrived: set[int] = set()

    @classmethod
    def parse_options(cls, text: str) -> Mapping[str, Any]:
        """Reads H."""
        return {"period_steps": whole_number(text, "STEPS", 1)}

    @classmethod
    def format_options(cls, options: Mapping[str, Any]) -> str:
        """Writes H."""
        return str(options["period_steps"])

    def start(self) -> Release:
        """Starts the first period with all workers."""
        return self._next_period()

    def on_push(self, worker: int, now_seconds: float) -> Release:
        """Releases `worker` within its period, and everybody when the last one has ended it."""
        if worker not in self.active:
            return NOBODY
        if worker not in self._left:
            raise ValueError(f"worker {worker} has no step under way in this period")
        self._left[worker] -= 1
        if self._left[worker] > 0:
            return Release((worker,))
        del self._left[worker]
        self._arrived.add(worker)
        return self._next_period_if_over()

    def add(self, worker: int) -> Release:
        """Admits `worker` to the next period, which starts now if nobody is at work."""
        self.active.add(worker)
        return self._next_period_if_over()

    def remove(self, worker: int) -> Release:
        """Releases the others when only `worker` was missing."""
        self.active.discard(worker)
        self._arrived.discard(worker)
        if self._left.pop(worker, None) is None:
            return NOBODY
        return self._next_period_if_over()

    def _next_period_if_over(self) -> Release:
        return NOBODY if self._left else self._next_period()

    def _next_period(self) -> Release:
        groups = (tuple(sorted(self._arrived)),) if len(self._arrived) > 1 else ()
        self._arrived = set()
        self._left = dict.fromkeys(self.active, self._period_steps)
        return Release(tuple(sorted(self.active)), groups)
