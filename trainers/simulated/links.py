"""The parameter server's link, shared by all transfers that are under way; pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


Moment = tuple[float, int]
"""When something happens, and to which worker; in one moment lower numbers come first."""
NEVER: Moment = (math.inf, -1)


class SharedLink(Generic[T]):
    """One direction of a link that many workers share, each behind a link of its own.

    Max-min fair sharing of a fluid: at any time all transfers get the same share, but none more
    than its worker's own link carries, and what these leave is shared by the others. Connections
    of one host share its link about so.

    Transfers over links that are equally fast have the same rate at any time. So they are kept
    together, and by how many bytes each of them would have got if it had begun with the first:
    who ends next is then the least of a heap, and a start or end costs about its logarithm.

    Args:
        bytes_per_second: That it carries; infinite for no limit.
        worker_bytes_per_second: That the workers' own links carry: worker k's the value at k modulo
            their number; infinite for no limit.

    Attributes:
        is_limited: Whether transfers take time at all.
        next: When the next transfer ends if no other one starts before.
    """

    def __init__(self, bytes_per_second: float, worker_bytes_per_second: Sequence[float]) -> None:
        self._bytes_per_second = bytes_per_second
        by_limit = {limit: _Alike[T](limit) for limit in sorted(set(worker_bytes_per_second))}
        self._classes = list(by_limit.values())
        self._of_worker = [by_limit[limit] for limit in worker_bytes_per_second]
        self.is_limited = not all(map(math.isinf, (bytes_per_second, *by_limit)))
        self.next = NEVER
        self._first = self._classes[0]
        self._now = 0.0
        self._started = 0

    def start(self, now_seconds: float, worker: int, size: float, what: T) -> None:
        """Begins a transfer.

        Args:
            now_seconds: Not after `next`, and not before anything that has happened here.
            worker: Whose.
            size: Bytes.
            what: Comes back from `end`.
        """
        self._advance(now_seconds)
        alike = self._of_worker[worker % len(self._of_worker)]
        self._started += 1
        heapq.heappush(alike.transfers, (alike.served + size, worker, self._started, what))
        self._share()

    def end(self) -> T:
        """Ends the transfer that `next` says."""
        first = self._first
        self._advance(self.next[0])
        first.served, _, _, what = heapq.heappop(first.transfers)
        if not first.transfers:
            first.served = 0.0
        self._share()
        return what

    def _advance(self, now_seconds: float) -> None:
        elapsed = now_seconds - self._now
        self._now = now_seconds
        for alike in self._classes:
            if alike.transfers:
                alike.served += elapsed * alike.rate

    def _share(self) -> None:
        """Sets the rates until something starts or ends, and what ends next."""
        waiting = sum(len(alike.transfers) for alike in self._classes)
        left = self._bytes_per_second
        self.next = NEVER
        for alike in self._classes:
            if not alike.transfers:
                continue
            alike.rate = min(alike.limit, left / waiting)
            left -= alike.rate * len(alike.transfers)
            waiting -= len(alike.transfers)
            target, worker = alike.transfers[0][:2]
            # Rounding may have served a little more than there was.
            moment = self._now + max(0.0, target - alike.served) / alike.rate, worker
            if moment < self.next:
                self.next, self._first = moment, alike


class _Alike(Generic[T]):
    """Transfers over links of the same bandwidth.

    Attributes:
        limit: Bytes per second of each link.
        rate: Of each transfer, now.
        served: Bytes that a transfer would have got that began when the first of these did.
        transfers: What was served when each one ends, its worker, its number, and what it is.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.rate = 0.0
        self.served = 0.0
        self.transfers: list[tuple[float, int, int, T]] = []
