"""How much faster a training with a policy is, and how surely; pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from syncswitch.storage.metrics import student_half_width
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.trials.values import StoredTrial

_LEVEL = 0.9
# Shorter phases are mostly warming up.
_LONG_PHASE = 0.1
_SwitchPoint = TypeVar("_SwitchPoint", bound=Hashable)
# Ends further away than this say only that too few runs were timed.
_WIDEST = math.log(100.0)


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """Times as fast as with the first protocol alone.

    Attributes:
        value: Mean time of the first protocol alone over the mean time with the policy.
        low: Lower end of the 90 % interval; None where too few runs were timed.
        high: Upper end of it.
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
    """The ratio of the mean times of two switch points, with a 90 % interval.

    The interval is Student's, of the difference of the logarithms. Times are taken to spread
    alike, in proportion, at all switch points: with a run or two at each, no switch point alone
    could say how much. Load that lasted for all runs of a switch point shows in the paces of a
    protocol, which are compared across switch points; where these spread more, they count.

    Args:
        seconds: Times of whole trainings, by switch point; any switch points help to say how times
            spread.
        switch_point: That of the policy.
        baseline: That of the first protocol alone.
        paces: Of each protocol the times that runs took for equally many worker-steps.

    Returns:
        None where one of the two was not timed.
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
    """Half of the interval of the logarithm; None where no group has two."""
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
    identity: WorkloadIdentity,
    runs: Iterable[tuple[float, StoredTrial]],
    baseline_percent: float = BASELINE_PERCENT,
) -> dict[float, SpeedUp]:
    """How much faster a training of a job is with each switch point than without a switch.

    Args:
        identity: The job.
        runs: The switch point that each counts for, and the run; diverged ones left out.
        baseline_percent: That of the first protocol alone.

    Returns:
        By switch point, as far as both were timed.
    """
    known = list(runs)
    seconds: dict[float, list[float]] = defaultdict(list)
    for percent, run in known:
        if run.whole_run_seconds is not None:
            seconds[percent].append(run.whole_run_seconds)
    protocols = (identity.first_protocol, identity.second_protocol)
    paces = [_paces(identity, protocol, [run for _, run in known]) for protocol in protocols]
    found = {
        percent: measured_speed_up(seconds, percent, baseline_percent, paces) for percent in seconds
    }
    return {percent: one for percent, one in found.items() if one is not None}


def _paces(
    identity: WorkloadIdentity, protocol: str, completed: Sequence[StoredTrial]
) -> list[float]:
    """The time of all of W at the pace of each phase that was long enough to have warmed up."""
    phases = (
        (phase.end_worker_step - phase.start_worker_step, phase.seconds)
        for run in completed
        for phase in run.phases
        if phase.protocol == protocol
    )
    total = identity.total_worker_steps
    return [seconds * total / steps for steps, seconds in phases if steps >= _LONG_PHASE * total]


def speed_up_of(policy: TimingPolicy, baseline_seconds: float | None = None) -> SpeedUp | None:
    """The speed-up of a policy, as it says; else by an estimate of its search.

    None where nobody knows that.
    """
    if policy.speed_up is not None:
        return SpeedUp(policy.speed_up, policy.speed_up_low, policy.speed_up_high)
    if not baseline_seconds or not policy.training_seconds:
        return None
    return SpeedUp(baseline_seconds / policy.training_seconds)
