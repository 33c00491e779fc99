"""How long the parts of a simulated worker-step take; pure, and the same for a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.simulated.links import SharedLink
from syncswitch.trainers.simulated.profile import ClusterProfile

BYTES_PER_VALUE = 4
# The worker asks, the parameters come, the gradient goes.
MESSAGES_OF_A_STEP = 3
# A mean of replicas: members fetch segments, fetch the means of segments, and agree that all have
# them. Each is a question and its answer.
_MESSAGES_OF_A_MEAN = 3 * 2


class StepTimes:
    """Times of one run on one cluster.

    Args:
        profile: Of the cluster.
        values: Float32 numbers that a copy of the model is, P + S: its parameters, and statistics
            such as those of BatchNorm.
        total_worker_steps: W.
        seed: Of the run. The variation of a worker-step depends on its number and this alone, so a
            fork meets what the run that wrote its checkpoint met.

    Attributes:
        model_bytes: Of a pull, and of a push.
    """

    def __init__(
        self, profile: ClusterProfile, values: int, total_worker_steps: int, seed: int
    ) -> None:
        self._profile = profile
        self.model_bytes = profile.parameter_bytes or values * BYTES_PER_VALUE
        self._worker_bandwidths = profile.worker_bandwidths_bytes_per_second or (math.inf,)
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
    def apply_seconds(self) -> float:
        """The parameter server is busy for so long with an update."""
        return self._profile.apply_seconds

    def server_link(self) -> SharedLink[Any]:
        """One direction of the parameter server's link, idle, with the workers' links at it."""
        server_bandwidth = self._profile.server_bandwidth_bytes_per_second or math.inf
        return SharedLink(server_bandwidth, self._worker_bandwidths)

    def compute_seconds(
        self, worker: int, worker_step: int, now_seconds: float, batches: int = 1
    ) -> float:
        """From the parameters' arrival at a worker to its gradient, of so many worker-steps."""
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
        """What joining the work of a group costs, after the last of them has arrived.

        Replicas are averaged by the members alone: of g, each fetches its g-th of the model from
        the others, and then the means of the other parts. These are the bytes of a ring
        (all-reduce, 2 (g - 1) / g of the model in and as many out) with the messages of three
        exchanges. The slowest link sets the pace.
        """
        if exchange is Exchange.ROUND:
            return self._profile.barrier_seconds + self._profile.apply_seconds
        if exchange is Exchange.BUFFER:
            return self._profile.apply_seconds
        if len(group) == 1:
            return 0.0
        links = self._worker_bandwidths
        slowest = min(links[worker % len(links)] for worker in group)
        transfer_seconds = 2 * (len(group) - 1) / len(group) * self.model_bytes / slowest
        return transfer_seconds + _MESSAGES_OF_A_MEAN * self.latency_seconds
