"""Global batch gradients aggregation: nobody waits, and updates are as large as those of BSP."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from syncswitch.trainers.protocols.base import NOBODY, Exchange, Release, SyncProtocol


class GBA(SyncProtocol):
    """Gradients fill a buffer in the order in which they arrive; a full buffer is one update.

    Source: Su et al., GBA: A Tuning-free Approach to Switch between Synchronous and Asynchronous
    Training for Recommendation Models, NeurIPS 2022 (arXiv 2205.11048). The buffer holds as many
    gradients as there are workers at the start, so that an update has the batch size and learning
    rate of one in BSP. Each step has a token, the number of the update for which it is handed out;
    each update has as many tokens as the buffer has places. A gradient whose token is more than
    `stale_updates` behind has no weight but takes its place: the mean is over all places.

    This is the simplest of the paper's ways to damp stale gradients. In the paper the token of a
    lost worker disappears; here the next step gets it, with the number that is due then, since
    tokens would otherwise run ahead of the updates and hide how old a gradient is. The size of the
    buffer does not change when workers leave or join. Once nobody is left, as at the end of a
    segment, the rest of the buffer is one update, with the rate of as many workers in BSP.

    Args:
        stale_updates: iota, the age of the oldest token that has weight, in updates.
    """

    name = "gba"
    usage = "gba:IOTA"
    exchange = Exchange.BUFFER
    least_workers = 2
    number = ("stale_updates", "IOTA", 0)

    def __init__(self, workers: Iterable[int], stale_updates: int) -> None:
        super().__init__(workers)
        self._stale_updates = stale_updates
        self._places = len(self.active)
        self._buffer: list[int] = []
        self._updates = 0
        self._tokens: dict[int, int] = {}

    @override
    def start(self) -> Release:
        return Release(tuple(map(self._hand_token, sorted(self.active))))

    def on_push(self, worker: int, now_seconds: float) -> Release:
        if worker not in self.active:
            return NOBODY
        is_stale = self._updates - self._tokens.pop(worker) > self._stale_updates
        self._buffer.append(worker)
        groups = self._empty() if len(self._buffer) == self._places else ()
        return Release((self._hand_token(worker),), groups, is_stale)

    def add(self, worker: int) -> Release:
        if worker in self.active:
            return NOBODY
        self.active.add(worker)
        return Release((self._hand_token(worker),))

    def remove(self, worker: int) -> Release:
        """Releases nobody, as nobody waits; the gradients in the buffer stay there."""
        self.active.discard(worker)
        self._tokens.pop(worker, None)
        return NOBODY if self.active or not self._buffer else Release((), self._empty())

    def _hand_token(self, worker: int) -> int:
        """Gives `worker` the lowest token that has neither arrived nor is out."""
        ahead = len(self._buffer) + len(self._tokens)
        self._tokens[worker] = self._updates + ahead // self._places
        return worker

    def _empty(self) -> tuple[tuple[int, ...], ...]:
        group, self._buffer = tuple(sorted(self._buffer)), []
        self._updates += 1
        return (group,)
