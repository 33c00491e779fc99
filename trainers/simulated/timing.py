"""How long the parts of a simulated worker-step take; pure, and the same for a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.simulated.profile import ClusterProfile

_BYTES_PER_PARAMETER = 4


@dataclass
class Link:
    """One direction of the parameter server's connection: one transfer after the other."""

    free_seconds: float = 0.0

    def reserve(self, now_seconds: float, duration_seconds: float) -> tuple[float, float]:
        """Queues a transfer; when it begins and ends."""
        start = max(now_seconds, self.free_seconds)
        self.free_seconds = start + duration_seconds
        return start, self.free_seconds


class StepTimes:
    """Times of one run on one cluster.

    Args:
        profile: Of the cluster.
        parameters: P of the model.
        total_worker_steps: W.
        seed: Of the run. The variation of a worker-step depends on its number and this alone, so a
            fork meets what the run that wrote its checkpoint met.
    """

    def __init__(
        self, profile: ClusterProfile, parameters: int, total_worker_steps: int, seed: int
    ) -> None:
        self._profile = profile
        size = profile.parameter_bytes or parameters * _BYTES_PER_PARAMETER
        bandwidth = profile.bandwidth_bytes_per_second
        self._transfer_seconds = size / bandwidth if bandwidth else 0.0
        # Log-normal with mean 1 and this standard deviation.
        variance = np.log1p(profile.compute_variation**2)
        self._factors = np.random.default_rng(seed).lognormal(
            -variance / 2, np.sqrt(variance), total_worker_steps
        )

    @property
    def latency_seconds(self) -> float:
        """Of each message."""
        return self._profile.latency_seconds

    @property
    def pull_seconds(self) -> float:
        """The parameter server's connection is busy for so long with a pull."""
        return self._transfer_seconds

    def push_seconds(self, exchange: Exchange) -> float:
        """The parameter server is busy for so long with a push, and the update that it is."""
        is_update = exchange is Exchange.PUSH
        return self._transfer_seconds + (self._profile.apply_seconds if is_update else 0.0)

    def compute_seconds(self, worker: int, worker_step: int, now_seconds: float) -> float:
        """From the parameters' arrival at a worker to its gradient."""
        profile = self._profile
        speed = profile.relative_speeds[worker % len(profile.relative_speeds)]
        seconds = profile.compute_seconds * float(self._factors[worker_step]) / speed
        for straggler in profile.stragglers:
            since = now_seconds - straggler.start_seconds
            if straggler.worker == worker and 0 <= since < straggler.duration_seconds:
                seconds = seconds * straggler.slowdown + straggler.delay_seconds
        return seconds

    def join_seconds(self, exchange: Exchange, members: int) -> float:
        """What joining the work of a group costs, after the last of them has arrived.

        Replicas are averaged by a ring of the members (DS-Sync, arXiv 2007.03298).
        """
        if exchange is Exchange.ROUND:
            return self._profile.barrier_seconds + self._profile.apply_seconds
        ring = 2 * (members - 1) / members * self._transfer_seconds
        return ring + 2 * (members - 1) * self.latency_seconds
