"""Means, and the gain of a policy in training time, with their intervals; pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from syncswitch.storage.metrics import student_half_width
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.trials.values import StoredTrial

_LEVEL = 0.9
# Phases shorter than this share of W mostly warm up.
_LONG_PHASE = 0.1
_SwitchPoint = TypeVar("_SwitchPoint", bound=Hashable)
# Wider intervals only mean that too few runs were timed.
_WIDEST = math.log(100.0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def mean(values: Sequence[float]) -> Estimate:
    """The mean with Student's interval, which has no width for a single value."""
    value, half = statistics.fmean(values), half_width(values)
    return Estimate(value, value - half, value + half)


def known_mean(values: Iterable[float | None]) -> Estimate | None:
    """The mean of the known values; None without any."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def half_width(values: Sequence[float]) -> float:
    """Half of Student's interval of the mean; 0 for a single value."""
    n = len(values)
    if n < 2:
        return 0.0
    return student_half_width(statistics.stdev(values) / math.sqrt(n), n - 1, 0.95)


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """How many times as fast a training is as with the first protocol alone, by their mean times.

    The ends of the 90 % interval are None where too few runs were timed.
    """

    value: float
    low: float | None = None
    high: float | None = None


def measured_speed_up(
    seconds: Mapping[_SwitchPoint, Sequence[float]],
    switch_point: _SwitchPoint,
    baseline: _SwitchPoint,
    paces: Sequence[Sequence[float]] = (),
) -> SpeedUp | None:
    """The ratio of the mean times of two switch points, with a 90 % interval; None if one has none.

    All `seconds` of whole trainings, by switch point, help to tell how much times spread. The
    interval is Student's, of the difference of the logarithms. Times are assumed to spread in the
    same proportion at all switch points, as a run or two at one of them cannot tell. Load that
    lasted for all runs of a switch point shows in the `paces` of a protocol, the times that its
    runs took for equally many worker-steps, which are compared across switch points; where these
    spread more, their spread counts.
    """
    timed = {key: [t for t in times if t > 0] for key, times in seconds.items()}
    mine, usual = timed.get(switch_point, []), timed.get(baseline, [])
    if not mine or not usual:
        return None
    value = statistics.fmean(usual) / statistics.fmean(mine)
    if switch_point == baseline:
        return SpeedUp(1.0, 1.0, 1.0)
    inverse_runs = 1 / len(mine) + 1 / len(usual)
    positive = [[pace for pace in group if pace > 0] for group in paces]
    halves = [_half_width(groups, inverse_runs) for groups in (list(timed.values()), positive)]
    half = max((half for half in halves if half is not None), default=None)
    if half is None or half > _WIDEST:
        return SpeedUp(value)
    return SpeedUp(value, value * math.exp(-half), value * math.exp(half))


def _half_width(groups: Sequence[Sequence[float]], inverse_runs: float) -> float | None:
    freedom = sum(len(times) - 1 for times in groups if times)
    if not freedom:
        return None
    squares = 0.0
    for times in groups:
        logs = [math.log(t) for t in times]
        centre = math.fsum(logs) / len(logs) if logs else 0.0
        squares += math.fsum((log - centre) ** 2 for log in logs)
    return student_half_width(math.sqrt(squares / freedom * inverse_runs), freedom, _LEVEL)


def speed_ups(
    identity: ScheduledJob,
    runs: Iterable[tuple[float, StoredTrial]],
    baseline_percent: float = BASELINE_PERCENT,
) -> dict[float, SpeedUp]:
    """The gain of each timed switch point of a job over the first protocol alone.

    Each run, none of which diverged, comes with the switch point that it counts for.
    """
    counted = list(runs)
    seconds: dict[float, list[float]] = defaultdict(list)
    for percent, run in counted:
        if run.times.whole_run_seconds is not None:
            seconds[percent].append(run.times.whole_run_seconds)
    protocols = (identity.first_protocol, identity.second_protocol)
    paces = [_paces(identity, protocol, [run for _, run in counted]) for protocol in protocols]
    gains = {
        percent: measured_speed_up(seconds, percent, baseline_percent, paces) for percent in seconds
    }
    return {percent: gain for percent, gain in gains.items() if gain is not None}


def _paces(identity: ScheduledJob, protocol: str, completed: Sequence[StoredTrial]) -> list[float]:
    """The time of all W worker-steps at the pace of each phase that is longer than a warm-up."""
    phases = (
        (phase.end_worker_step - phase.start_worker_step, phase.seconds)
        for run in completed
        for phase in run.phases
        if phase.protocol == protocol
    )
    total = identity.total_worker_steps
    return [seconds * total / steps for steps, seconds in phases if steps >= _LONG_PHASE * total]


def speed_up_of(policy: TimingPolicy, baseline_seconds: float | None = None) -> SpeedUp | None:
    """The gain of a policy: its own figure, else from its times; None where these are unknown.

    `baseline_seconds` is the time of a training with the first protocol alone.
    """
    measured = policy.measured
    if measured.speed_up is not None:
        return SpeedUp(measured.speed_up, measured.speed_up_low, measured.speed_up_high)
    if not baseline_seconds or not measured.training_seconds:
        return None
    return SpeedUp(baseline_seconds / measured.training_seconds)
