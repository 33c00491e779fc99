"""Signs in a run's own evaluations that its switch has failed, for a job without a measured target.

Each is a pure function, from the evaluations so far to a clause with figures or to None. They need
the standard library alone, as the guard does.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.storage.records.guard import LOST
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import Evaluation

IN_A_ROW = 3  # one evaluation may be low by chance, but not this many in a row
_BLOWN_UP = 2.0
"""Factor on the highest training loss before the switch at which the loss has blown up."""

_DEVIATIONS = 4.0  # of one evaluation, by which the mean of a few is not low by chance
_FALLEN, _FALLEN_ALIKE = 0.2, 0.1
"""Shares of the job for which a run stays below what it had, where it has failed.

With one momentum for all workers many good runs fall at the switch and recover within a sixth of
the job. With one for each worker a run follows the first protocol's curve, so it does not fall.
"""

_STILL = 0.25  # share of the job without any rise in which a run has come to a standstill
_LATE_FROM = 0.475  # share of the job from which on the pace says something about the end
_WINDOW = 0.1  # share of the job over which the pace is measured, or three evaluations
PACE_KEPT = 0.25
"""Share of its present pace at which a run may go on to its end; curves flatten."""

_LUCK = 1.5  # standard deviations by which a run rises by chance
_LATE = 3.25
"""Thresholds of the geometric mean of what a late run has yet to gain, and will lack then.

A run that hardly rises any more has learnt what it can, even if that is little, and one that will
lack little has not lost much: neither alone is a sign.
"""

_WITHIN_REACH = 8.0
"""Thresholds from the best possible by which a run may end that is late, if runs are alike.

Who will lack more most likely has a job that nobody brings to the best possible, and many of these
still rise at their half with the first protocol as well.
"""

_BY_CHANCE = 2.0  # deviations of one evaluation by which a run falls by chance
_BY_OVERFITTING = 0.05  # share that an accuracy may fall of what it was
_STEADY_FROM, _STEADY = 7, 0.95
"""Evaluations, and the share of pairs of them that fall, in what falls too steadily for that."""

_RANGE = 0.05  # of what a run has risen, which stands for a threshold that is not known


@dataclass(frozen=True, slots=True)
class Job:
    """What the signs know of a job."""

    total_worker_steps: int  # its length
    metric: Metric  # what the evaluations measure
    threshold: float  # the accuracy that may be lost; 0 if it is not known
    # Whether runs follow the first protocol's curve after the switch, as they do with a momentum
    # for each worker.
    is_alike: bool
    decays: Sequence[int] | None  # worker-steps at which the learning rate decays; None if unknown


def failure(evaluations: Sequence[Evaluation], switch_worker_step: int, job: Job) -> str | None:
    """Why a run has failed, by its evaluations alone; None if it has not."""
    return (
        fallen(evaluations, switch_worker_step, job)
        or standing_still(evaluations, switch_worker_step, job)
        or late(evaluations, job)
    )


def blown_up(evaluations: Sequence[Evaluation], switch_worker_step: int) -> str | None:
    """Whether the last training losses are far above all before the switch."""
    before = [one for one in evaluations if one.worker_step <= switch_worker_step]
    last = evaluations[len(before) :][-IN_A_ROW:]
    losses = [one.training_loss for one in before if math.isfinite(one.training_loss)]
    highest = max(losses, default=0.0)
    if len(last) < IN_A_ROW or highest <= 0.0:
        return None
    # If nothing was trained between two evaluations, the loss is NaN.
    if not all(one.training_loss > _BLOWN_UP * highest for one in last):
        return None
    return (
        f"the training loss has blown up to {last[-1].training_loss:.4g}, "
        f"from at most {highest:.4g} before the switch"
    )


def fallen(evaluations: Sequence[Evaluation], switch_worker_step: int, job: Job) -> str | None:
    """Whether the run has been below its own best for long."""
    levels, done = _levels(evaluations), evaluations[-1].worker_step
    since = _since(levels, done, _FALLEN_ALIKE if job.is_alike else _FALLEN, job)
    earlier = [level for level in levels if level[0] <= since]
    recent = [accuracy for step, accuracy in levels if step > since]
    if since < switch_worker_step or not earlier or len(recent) < IN_A_ROW:
        return None
    at, best = max(earlier, key=lambda level: level[1])
    if max(recent) >= best - _margin(evaluations, job):
        return None
    W = job.total_worker_steps
    text, verb = job.metric.text, job.metric.words.worsened
    when = "before the switch" if at <= switch_worker_step else f"at {100 * at / W:.0f} %"
    return (
        f"{job.metric.name} {verb} to {text(recent[-1])} from {text(best)} {when},"
        f" and has not recovered in {100 * (done - at) / W:.0f} % of the run"
    )


def standing_still(
    evaluations: Sequence[Evaluation], switch_worker_step: int, job: Job
) -> str | None:
    """Whether a run that was rising up to its switch has not risen for long."""
    before = [one.accuracy for one in evaluations if one.worker_step <= switch_worker_step]
    levels = _levels(evaluations)
    since = _since(levels, evaluations[-1].worker_step, _STILL, job)
    recent = [accuracy for step, accuracy in levels if step > since]
    if since < switch_worker_step or len(before) < 2 or len(recent) < IN_A_ROW:
        return None
    margin = _margin(evaluations, job)
    if before[-1] - before[-2] <= margin or max(recent) > before[-1]:
        return None
    if job.is_alike and still_to_rise(before) <= margin:
        return None
    text, verb = job.metric.text, job.metric.words.improving
    return (
        f"{job.metric.name} has stalled at {text(recent[-1])}, although it was still {verb} at the"
        f" switch, from {text(before[-2])} to {text(before[-1])}"
    )


def still_to_rise(accuracies: Sequence[float]) -> float:
    """How much further a curve rises if its rises go on to shrink as the last two did.

    It is the limit of Aitken's delta-squared process; 0 where two evaluations show a single rise.
    """
    if len(accuracies) < 3:
        return 0.0
    last, one_before = accuracies[-1] - accuracies[-2], accuracies[-2] - accuracies[-3]
    if last <= 0:
        return 0.0
    return last * last / (one_before - last) if one_before > last else math.inf


def late(evaluations: Sequence[Evaluation], job: Job) -> str | None:
    """Whether a run still learns fast near its half, and yet will end far from the best possible.

    If runs are alike, it has to be near enough to it to get there at all (`_WITHIN_REACH`). Nobody
    knows what a decay of the learning rate brings, so this waits for the first one, and for
    evaluations of which none is from before the last one.
    """
    best, done = job.metric.accuracies[1], evaluations[-1].worker_step
    if best is None or not job.threshold or job.decays is None:
        return None
    window = _WINDOW * job.total_worker_steps
    number = max(IN_A_ROW, sum(one.worker_step > done - window for one in evaluations))
    if len(evaluations) < 3 * number or done < _LATE_FROM * job.total_worker_steps:
        return None
    measured = evaluations[-2 * number :]
    begin = measured[0].worker_step
    passed = [at for at in job.decays if at < done]
    if (job.decays and not passed) or any(at >= begin for at in passed):
        return None
    before, earlier, now = (
        statistics.fmean(one.accuracy for one in evaluations[end - number : end])
        for end in (len(evaluations) - 2 * number, len(evaluations) - number, len(evaluations))
    )
    by_chance = spread_of([one.accuracy for one in evaluations[-4 * number :]]) * math.sqrt(
        2 / number
    )
    if earlier <= before or now - earlier <= _LUCK * by_chance:
        return None
    pace = (now - earlier - _LUCK * by_chance) / (done - evaluations[-1 - number].worker_step)
    gain = PACE_KEPT * pace * (job.total_worker_steps - done)
    lacking = best - now - gain
    if gain <= job.threshold or math.sqrt(gain * max(0.0, lacking)) <= _LATE * job.threshold:
        return None
    if job.is_alike and lacking > _WITHIN_REACH * job.threshold:
        return None
    text, verb = job.metric.text, job.metric.words.improving
    return (
        f"{job.metric.name} is {text(now)} after {done / job.total_worker_steps:.0%} of the job,"
        f" and still {verb}, but too slowly to get beyond about {text(now + gain)}"
    )


def has_only_fallen(evaluations: Sequence[Evaluation]) -> bool:
    """Whether a run gets worse by what it learns, as a loss that is taken for an accuracy does."""
    accuracies = [one.accuracy for one in evaluations]
    if len(accuracies) < IN_A_ROW or max(accuracies[1:]) >= accuracies[0]:
        return False
    third = len(accuracies) // 3
    level = statistics.fmean(accuracies[:third])
    fall = level - statistics.fmean(accuracies[-third:])
    if fall <= _BY_CHANCE * spread_of(accuracies):
        return False
    return fall > _BY_OVERFITTING * level or _is_steady(accuracies)


def _is_steady(falling: Sequence[float]) -> bool:
    """Whether nearly each of these is below all before it, as of a loss that falls slowly."""
    pairs = list(itertools.combinations(falling, 2))
    falls = sum(later < earlier for earlier, later in pairs)
    return len(falling) >= _STEADY_FROM and falls >= _STEADY * len(pairs)


def is_refuted(
    failed: Sequence[Evaluation], evaluations: Sequence[Evaluation], begin: int, end: int, job: Job
) -> bool:
    """Whether the first protocol was no better than what was given up for it.

    Args:
        failed: Tests after the switch that has failed.
        evaluations: Those that count now.
        begin: Worker-steps before the switch that has failed.
        end: Worker-steps before the next one; the first protocol made those in between.
        job: The job.
    """
    if not failed:
        return False
    steps = [one.worker_step for one in failed]
    again = [
        one
        for one in evaluations
        if begin < one.worker_step <= end and steps[0] <= one.worker_step <= steps[-1]
    ]
    if len(again) < IN_A_ROW:
        return False
    last = again[-IN_A_ROW:]
    before = [failed[bisect_left(steps, one.worker_step)].accuracy for one in last]
    better = statistics.fmean(one.accuracy for one in last) - statistics.fmean(before)
    return better <= _margin(again, job)


def spread_of(accuracies: Sequence[float]) -> float:
    """The typical distance of evaluations from the line between their neighbours."""
    if len(accuracies) < 3:
        return 0.0
    bends = [
        abs(one - (before + after) / 2)
        for before, one, after in zip(accuracies, accuracies[1:], accuracies[2:], strict=False)
    ]
    # For independent points with a deviation of 1, a bend has a deviation of sqrt(1.5).
    return statistics.median(bends) / (0.6745 * math.sqrt(1.5))


def _margin(evaluations: Sequence[Evaluation], job: Job) -> float:
    """How much lower an evaluation may be than it was."""
    accuracies, threshold = [one.accuracy for one in evaluations], job.threshold
    if not threshold:
        # Of a curve that has settled the typical difference is next to nothing.
        falls = [max(0.0, one - later) ** 2 for one, later in itertools.pairwise(accuracies)]
        rough = math.sqrt(statistics.fmean(falls)) if falls else 0.0
        threshold = max(_RANGE * (max(accuracies) - min(accuracies)), rough)
    return LOST * threshold + _DEVIATIONS * spread_of(accuracies)


def _since(levels: Sequence[tuple[int, float]], done: int, share: float, job: Job) -> float:
    """Where the last `share` of the job begins, or the last levels where evaluations are rare."""
    since = done - share * job.total_worker_steps
    return min(since, levels[-IN_A_ROW - 1][0]) if len(levels) > IN_A_ROW else since


def _levels(evaluations: Sequence[Evaluation]) -> list[tuple[int, float]]:
    """The mean of each few evaluations in a row, at the last of them."""
    rows = (evaluations[end - IN_A_ROW : end] for end in range(IN_A_ROW, len(evaluations) + 1))
    return [(row[-1].worker_step, statistics.fmean(one.accuracy for one in row)) for row in rows]
