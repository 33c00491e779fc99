"""Derives the profile of a cluster from runs that were measured on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from syncswitch.storage.errors import IMPORT_SOME, SEARCH_FIRST, OptionHint, UserError
from syncswitch.storage.records.trial import PhaseRecord
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.simulated.timeline import (
    BYTES_PER_VALUE,
    MESSAGES_OF_A_STEP,
    TimedJob,
    simulate_phases,
)

Vector = NDArray[np.float64]

_SYNCHRONOUS, _ASYNCHRONOUS = "bsp", "asp"
_LEAST_SECONDS = 1e-9
# Worker-steps played to measure a round, and the share of its time that is left to chance.
_PLAYED_STEPS = 16_000
_CHANCE = 0.01


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """The pace of a cluster, as measured."""

    workers: int
    bsp_seconds: float  # a round, in which each worker does one worker-step
    asp_seconds: float  # mean duration of one worker-step
    runs: int  # behind these figures


@dataclass(frozen=True, slots=True)
class Network:
    """A cluster's network, which the times of runs do not reveal."""

    worker_bandwidth: float | None = None  # bytes per second of each worker's link
    server_bandwidth: float | None = None  # bytes per second of the parameter server's link
    latency_seconds: float = 0.0  # delay of each message
    values: int = 0  # P + S of the model that was measured


def measured_pace(workers: int, runs: Iterable[Sequence[PhaseRecord]]) -> MeasuredTimes:
    """The mean pace over all phases of these runs.

    Runs that never switch are preferred where both protocols have some, because their times do not
    contain the cost of a switch. Raises UserError if no time was measured with one of the two
    protocols.
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
                f"no measured time with {protocol.upper()}: a profile needs runs with bsp and asp",
                remedy=(SEARCH_FIRST, IMPORT_SOME),
                code="nothing-recorded",
            )
        pace[protocol] = seconds / steps * workers
    return MeasuredTimes(workers, pace[_SYNCHRONOUS], pace[_ASYNCHRONOUS], len(kept))


def calibrate(
    measured: MeasuredTimes, variation: float, description: str = "", network: Network = Network()
) -> ClusterProfile:
    """A profile with which BSP and ASP take as long as measured.

    In ASP nobody waits, so a worker's step is its computing, plus its transfers where the network
    is known. A BSP round lasts as long as the slowest of n workers, which is found by playing some
    rounds; whatever the measured time has beyond that is attributed to the barrier: the parameter
    server's work for a round, stragglers, and, where the network is not known, transfers that slow
    each other down. The variation, standard deviation over mean of a worker's computing time,
    cannot be derived from BSP and ASP times. Raises UserError if the variation or network alone
    would take longer than measured.
    """
    n, asp, bsp = measured.workers, measured.asp_seconds, measured.bsp_seconds
    _check_fits("a worker's step in ASP", asp, asp_seconds(n, _LEAST_SECONDS, network))
    compute = float(
        optimize.brentq(lambda seconds: asp_seconds(n, seconds, network) - asp, _LEAST_SECONDS, asp)
    )
    links = () if network.worker_bandwidth is None else (network.worker_bandwidth,)
    profile = ClusterProfile(
        description=description,
        compute_seconds=compute,
        compute_variation=variation,
        worker_bandwidths_bytes_per_second=links,
        server_bandwidth_bytes_per_second=network.server_bandwidth,
        latency_seconds=network.latency_seconds,
    )
    rounds = math.ceil(_PLAYED_STEPS / n)
    job = TimedJob(n, rounds * n, (_SYNCHRONOUS, _SYNCHRONOUS), network.values)
    played = math.fsum(phase.seconds for phase in simulate_phases(profile, job, 100.0, 0)) / rounds
    _check_fits("a BSP round", bsp, (1 - _CHANCE) * played)
    return profile.model_copy(update={"barrier_seconds": max(0.0, bsp - played)})


def _check_fits(what: str, measured_seconds: float, least_seconds: float) -> None:
    if least_seconds > measured_seconds:
        raise UserError(
            f"{what} was measured to take {measured_seconds:.4g} s, less than the"
            f" {least_seconds:.4g} s that this variation and network take at least",
            remedy=(
                *(
                    OptionHint(name, verb="reduce")
                    for name in ("variation", "latency", "parameters")
                ),
                *(
                    OptionHint(name, verb="increase")
                    for name in ("worker_bandwidth", "server_bandwidth")
                ),
            ),
        )


def asp_seconds(workers: int, compute_seconds: float, network: Network) -> float:
    """Mean time of a worker's step in ASP.

    Pulls and pushes are two stations whose customers share them fairly, all else is a delay. The
    throughput of such a closed network of queues has an exact form, in which distributions matter
    by their mean alone (Baskett, Chandy, Muntz and Palacios, Open, Closed, and Mixed Networks of
    Queues with Different Classes of Customers, 1975).
    """
    delay_seconds = compute_seconds + MESSAGES_OF_A_STEP * network.latency_seconds
    there = np.arange(1, workers + 1)
    bytes_per_second = np.minimum(
        there * (network.worker_bandwidth or math.inf), network.server_bandwidth or math.inf
    )
    transfer_seconds = BYTES_PER_VALUE * network.values / bytes_per_second
    if not transfer_seconds[0]:
        return delay_seconds
    # About one step ends in so much time; in other units the products leave the range of floats.
    unit = max((delay_seconds + 2 * transfer_seconds[0]) / workers, transfer_seconds[-1])
    station = _weights(transfer_seconds / unit)
    both = np.convolve(station, station)[: workers + 1]
    weights = np.convolve(both, _weights(delay_seconds / there / unit))
    return float(workers * unit * weights[workers] / weights[workers - 1])


def _weights(seconds: Vector) -> Vector:
    """Unnormalized probabilities of 0, 1, 2, ... customers at a station: products of its times."""
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(seconds))])
    weights: Vector = np.exp(logarithms - logarithms.max())
    return weights
