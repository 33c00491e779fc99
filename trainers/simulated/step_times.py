"""Durations of the parts of a simulated worker-step; pure, determined by the seed."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.simulated.profile import ClusterProfile

T = TypeVar("T")

Moment = tuple[float, int]  # time of an event and its worker; ties go to the lower number
NEVER: Moment = (math.inf, -1)


class SharedLink(Generic[T]):
    """One direction of a link that many workers share, each behind its own link.

    Sharing is max-min fair: at any time all transfers get the same rate, except that none exceeds
    its worker's own link, and the others share what that leaves. The connections of a host share
    its link in about this way. Worker k has the k-th own link, or that modulo their number.

    Transfers over equally fast links have the same rate at any time. They are kept in one heap,
    ordered by the bytes that each would have received had it started with the first one, so that
    a start or an end takes time logarithmic in their number.
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
        """Begins a transfer of `size` bytes, for which `end` returns `what`.

        It is neither after `next` nor before an earlier call.
        """
        self._advance(now_seconds)
        alike = self._of_worker[worker % len(self._of_worker)]
        self._started += 1
        heapq.heappush(alike.transfers, (alike.served + size, worker, self._started, what))
        self._share()

    def end(self) -> T:
        """Ends the next transfer, at the time `next`."""
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
        """Sets the rates until the next start or end, and finds the transfer that ends next."""
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
            # By rounding, a transfer may have received a little more than its size.
            moment = self._now + max(0.0, target - alike.served) / alike.rate, worker
            if moment < self.next:
                self.next, self._first = moment, alike


class _Alike(Generic[T]):
    """Transfers over links of bandwidth `limit`, each with the value of `served` at its end."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.rate = 0.0
        self.served = 0.0
        self.transfers: list[tuple[float, int, int, T]] = []


BYTES_PER_VALUE = 4
# The worker asks, the parameters come, the gradient goes.
MESSAGES_OF_A_STEP = 3
# To average replicas, members fetch segments, fetch the means of segments, and agree that everybody
# is done; each takes a request and its answer.
_MESSAGES_OF_A_MEAN = 3 * 2


class StepTimes:
    """The times of one run on one cluster.

    The variation of a worker-step depends only on its number and the seed, so a fork has the same
    times as the run that wrote its checkpoint. A copy of the model, a pull or a push, has so many
    float32 values, P + S: its parameters, and statistics such as those of BatchNorm.
    """

    def __init__(
        self, profile: ClusterProfile, values: int, total_worker_steps: int, seed: int
    ) -> None:
        self._profile = profile
        self.model_bytes = profile.parameter_bytes or values * BYTES_PER_VALUE
        self.latency_seconds = profile.latency_seconds
        self.apply_seconds = profile.apply_seconds
        self.switch_seconds = profile.switch_seconds
        self._worker_bandwidths = profile.worker_bandwidths_bytes_per_second or (math.inf,)
        # Log-normal with mean 1 and this standard deviation.
        variance = np.log1p(profile.compute_variation**2)
        self._factors = np.random.default_rng(seed).lognormal(
            -variance / 2, np.sqrt(variance), total_worker_steps
        )

    def server_link(self) -> SharedLink[Any]:
        """One direction of the parameter server's link, idle."""
        server_bandwidth = self._profile.server_bandwidth_bytes_per_second or math.inf
        return SharedLink(server_bandwidth, self._worker_bandwidths)

    def compute_seconds(
        self, worker: int, worker_step: int, now_seconds: float, batches: int = 1
    ) -> float:
        """Time in which a worker computes its gradient, once the parameters have arrived."""
        profile = self._profile
        speed = profile.relative_speeds[worker % len(profile.relative_speeds)]
        factor = math.fsum(self._factors[worker_step : worker_step + batches])
        seconds = profile.compute_seconds * factor / speed
        for straggler in profile.stragglers:
            since = now_seconds - straggler.start_seconds
            if straggler.worker == worker and 0 <= since < straggler.duration_seconds:
                seconds = seconds * straggler.slowdown + straggler.delay_seconds
        return seconds

    def join_seconds(self, exchange: Exchange, group: Sequence[int]) -> float:
        """Time in which the work of a group is joined, once the last member has arrived.

        Replicas are averaged by the members among themselves: each of the g members fetches one
        g-th of the model from the others, then the means of the other parts. This moves as many
        bytes as a ring all-reduce, 2 (g - 1) / g of the model in each direction, in the messages of
        three exchanges. The slowest link sets the pace.
        """
        if exchange is Exchange.ROUND:
            return self._profile.barrier_seconds + self.apply_seconds
        if exchange is Exchange.BUFFER:
            return self.apply_seconds
        links = self._worker_bandwidths
        slowest = min(links[worker % len(links)] for worker in group)
        transfer_seconds = 2 * (len(group) - 1) / len(group) * self.model_bytes / slowest
        return transfer_seconds + _MESSAGES_OF_A_MEAN * self.latency_seconds
