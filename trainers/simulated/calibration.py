"""From measured runs to the profile of the cluster that they ran on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import integrate, stats

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import PhaseRecord
from syncswitch.trainers.simulated.profile import ClusterProfile

_SYNCHRONOUS, _ASYNCHRONOUS = "bsp", "asp"
# Standard deviations beyond which nothing is left of the integral, and its points.
_TAIL = 10.0
_POINTS = 4001


@dataclass(frozen=True, slots=True)
class Measured:
    """What a cluster was measured to do.

    Attributes:
        workers: n.
        bsp_seconds: Time of one round, in which each worker does one worker-step.
        asp_seconds: Time in which each worker does one worker-step in ASP.
        runs: How many runs stand behind it.
    """

    workers: int
    bsp_seconds: float
    asp_seconds: float
    runs: int


def measured_pace(workers: int, runs: Iterable[Sequence[PhaseRecord]]) -> Measured:
    """How long a round took, over all phases of these runs.

    Runs with one protocol alone count where there are such of both: what a switch costs is not in
    them.
    """
    kept = [phases for phases in runs if phases]
    pure = [phases for phases in kept if len(phases) == 1]
    if {phases[0].protocol for phases in pure} >= {_SYNCHRONOUS, _ASYNCHRONOUS}:
        kept = pure
    pace = {}
    for protocol in (_SYNCHRONOUS, _ASYNCHRONOUS):
        phases = [phase for run in kept for phase in run if phase.protocol == protocol]
        steps = sum(phase.end_worker_step - phase.start_worker_step for phase in phases)
        seconds = math.fsum(phase.seconds for phase in phases)
        if steps == 0 or seconds <= 0:
            raise UserError(
                f"no measured time with {protocol.upper()}: a profile needs runs with bsp and asp;"
                " `syncswitch-search run` or `syncswitch-search import` adds them"
            )
        pace[protocol] = seconds / steps * workers
    return Measured(workers, pace[_SYNCHRONOUS], pace[_ASYNCHRONOUS], len(kept))


def calibrate(measured: Measured, variation: float, description: str = "") -> ClusterProfile:
    """A profile whose BSP and ASP take as long as was measured.

    In ASP nobody waits, so a worker's step takes as long as computing. A round takes as long as the
    slowest of n, and what is missing up to the measured time is the barrier's: the parameter
    server's work for a round, transfers that get into each other's way, stragglers.

    Args:
        measured: What was.
        variation: Standard deviation over mean of a worker's step, which pure BSP and ASP times
            cannot tell.
        description: For people.
    """
    compute = measured.asp_seconds
    slowest = compute * slowest_of(measured.workers, variation)
    if measured.bsp_seconds < slowest:
        raise UserError(
            f"a BSP round of {measured.workers} workers was measured to take"
            f" {measured.bsp_seconds:.4g} s, less than the {slowest:.4g} s of the slowest with a"
            f" variation of {variation:g}; give a smaller --variation"
        )
    return ClusterProfile(
        description=description,
        compute_seconds=compute,
        compute_variation=variation,
        barrier_seconds=measured.bsp_seconds - slowest,
    )


def slowest_of(workers: int, variation: float) -> float:
    """Mean of the longest of n log-normal times with mean 1 and this standard deviation."""
    variance = math.log1p(variation**2)
    deviation = math.sqrt(variance)
    # Over the standard normal variable z whose exponential is the time.
    z = np.linspace(-_TAIL, _TAIL + deviation, _POINTS)
    density = workers * stats.norm.pdf(z) * stats.norm.cdf(z) ** (workers - 1)
    return float(integrate.trapezoid(density * np.exp(deviation * z - variance / 2), z))
