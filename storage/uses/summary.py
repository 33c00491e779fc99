"""How well a policy does in the runs that used it; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from syncswitch.storage.metrics import mean_of, student_half_width
from syncswitch.storage.records.goal import Goal, is_kept
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.trials.values import StoredTrial


@dataclass(frozen=True, slots=True)
class UseSummary:
    """The uses of one version of a policy, except those that were disturbed on purpose.

    Attributes:
        uses: Number of runs.
        kept: How many of them did not diverge and lost at most beta; None while no target tells.
        alarms: How many of them the guard sent back to the switch: the policy's own switch failed
            there, though the run may be kept.
        kept_after_alarm: How many of those sent back are kept; None likewise.
        mean_training_seconds: Mean over the runs that did not diverge; None if there is none.
        speed_up: The policy's baseline over that mean; None if either is unknown.
        last_ended_at: End of the last use; None without one.
        collapsed: How many ended in the first protocol alone, and so low that the target leaves
            them out.
        drift: The change of the job, if the newest uses keep the accuracy less often than those
            before; None if they do not.
    """

    uses: int
    kept: int | None
    alarms: int
    kept_after_alarm: int | None
    mean_training_seconds: float | None
    speed_up: float | None
    last_ended_at: datetime | None
    drift: Drift | None = None
    collapsed: int = 0


def is_alone(use: StoredTrial) -> bool:
    """Returns whether a use ended in the first protocol alone, and tells of the target."""
    is_sound = not use.result.diverged and not use.under.injections
    return is_sound and use.guard.held_percent == BASELINE_PERCENT


def accuracies_alone(uses: Iterable[StoredTrial], above: float = -math.inf) -> list[float]:
    """Accuracies of uses that ended in the first protocol alone; each seed counts once.

    Those that are not `above` are left out.
    """
    by_seed = {use.seed: use.result.converged_accuracy for use in uses if is_alone(use)}
    return [one for one in by_seed.values() if one is not None and one > above]


# Fewer thresholds below all others are no collapse, however much alike these are.
_COLLAPSED = 10
# Chance that an honest run counts as a collapse, where runs differ as in a normal distribution.
_COLLAPSED_BY_CHANCE = 0.001
_LEAST_SOUND = 2
# Without a threshold the others alone say how much runs differ, and a smaller share of what they
# reach is no collapse.
_LEAST_SOUND_ALONE, _COLLAPSED_SHARE = 3, 0.1


def collapse_limit(
    alone: Iterable[float],
    beside: Iterable[float],
    threshold: float,
    *,
    may_lack_target: bool = False,
) -> float:
    """Returns the accuracy at or below which runs of the first protocol alone have collapsed.

    It is minus infinity where none has. Collapsed runs are a minority of all, and much further
    below the others than these differ, by Student's interval of one more run, and than thresholds
    are. Few runs say little of how much they differ; half a threshold counts as one more. Where all
    runs of the first protocol alone are the low ones, that is what it reaches, unless there is only
    one.

    Args:
        alone: Accuracies of runs of the first protocol alone.
        beside: Those of runs whose switch held.
        threshold: beta; 0 while nobody can say what it might be.
        may_lack_target: Whether the only run of the first protocol alone may have collapsed, so
            that its target has yet to be measured.
    """
    of_first = sorted(alone)
    every = sorted([*of_first, *beside])
    if not of_first:
        return -math.inf
    may_be_lone = may_lack_target and len(of_first) == 1
    least = _LEAST_SOUND if threshold else _LEAST_SOUND_ALONE
    most = min((len(every) - 1) // 2, len(every) - least)
    for low in range(most, 0, -1):
        sound, limit = every[low:], every[low - 1]
        if (of_first[-1] <= limit and not may_be_lone) or of_first[0] > limit:
            continue
        mean = math.fsum(sound) / len(sound)
        if limit > sound[0] - (_COLLAPSED * threshold or _COLLAPSED_SHARE * abs(mean)):
            continue
        squares = math.fsum((one - mean) ** 2 for one in sound) + (threshold / 2) ** 2
        freedom = len(sound) if threshold else len(sound) - 1
        error = math.sqrt(squares / freedom * (1 + 1 / len(sound)))
        sure = 1 - 2 * _COLLAPSED_BY_CHANCE / len(every)
        apart = student_half_width(error, freedom, sure)
        if limit < mean - apart:
            return limit
    return -math.inf


def collapse_limit_of(policy: TimingPolicy, uses: Iterable[StoredTrial]) -> float:
    """Returns the same for all runs of a policy's job so far.

    A threshold that these runs have to measure, or have measured, may be too large for a collapse
    among them; then the usual one of the metric counts as well.
    """
    counted = list(uses)
    switched = (
        use.result.converged_accuracy
        for use in counted
        if not (use.result.diverged or use.under.injections or is_alone(use))
        and use.guard.held_percent is not None
    )
    searched = (
        run.converged_accuracy
        for run in policy.evidence
        if run.switch_percent < BASELINE_PERCENT and not run.diverged
    )
    beside = [*searched, *(one for one in switched if one is not None)]
    alone = [*policy.accuracies_alone, *accuracies_alone(counted)]
    thresholds = {policy.threshold}
    if policy.allowed.is_from_runs or not policy.allowed.is_known:
        thresholds |= {policy.job.metric.usual_threshold}
    lacks = not policy.accuracies_alone
    return max(collapse_limit(alone, beside, one, may_lack_target=lacks) for one in thresholds)


def stated_target(policy: TimingPolicy, limit: float) -> float | None:
    """Returns the target of a version, unless it is that of a run that collapsed.

    A target that a search was given, or has measured, stays.

    Args:
        policy: The version.
        limit: See `collapse_limit`.
    """
    target = policy.target_accuracy
    return None if target is None or (target <= limit and not policy.evidence) else target


def goal_of(policy: TimingPolicy, uses: Iterable[StoredTrial]) -> Goal | None:
    """Returns what runs of a policy's job are held to; None until it is measured.

    It is the mean of all runs of the first protocol alone so far: those of the search, and the uses
    of all versions that ended so. A given target stays as it is, and one of simulated runs until
    there is a run of the job itself. A policy that has yet to measure its threshold has no target.
    Runs that collapsed are no part of it.
    """
    counted, band = list(uses), policy.band
    limit = collapse_limit_of(policy, counted)
    known = accuracies_alone(counted, limit)
    searched = [one for one in policy.accuracies_alone if one > limit]
    stated = stated_target(policy, limit)
    runs = len(searched) or (0 if band is None else band.runs)
    if stated is None or (known and runs):
        accuracies = [*searched, *known]
        is_measured = accuracies and (policy.allowed.is_known or stated is not None)
        return Goal.mean_of(accuracies, policy.threshold) if is_measured else None
    if searched:
        return replace(Goal.mean_of(searched, policy.threshold), accuracy=stated)
    if band is not None and band.goal is not None:
        return replace(band.goal, threshold=policy.threshold)
    return Goal(stated, policy.threshold)


def judged_by(policy: TimingPolicy, versions: Iterable[TimingPolicy]) -> TimingPolicy:
    """Returns a version with the threshold that its runs are judged by.

    That of runs that measured it is in the next of all `versions` that has one.
    """
    if policy.allowed.is_known:
        return policy
    later = [
        (one.version, one.threshold)
        for one in versions
        if one.job == policy.job
        and one.protocols.first_protocol == policy.protocols.first_protocol
        and one.version > policy.version
        and one.allowed.is_known
    ]
    if not later:
        return policy
    return replace(policy, allowed=replace(policy.allowed, threshold=min(later)[1]))


def use_summary(policy: TimingPolicy, uses: Sequence[StoredTrial]) -> UseSummary:
    """Sums up the uses of a version, given those of all versions.

    Uses of other versions tell of the target alone; disturbed ones are left out.
    """
    counted = [
        use
        for use in uses
        if use.origin.policy_version == policy.version and use.under.injections is None
    ]
    goal, limit = goal_of(policy, uses), collapse_limit_of(policy, uses)
    second = policy.protocols.second_protocol
    kept = [use for use in counted if is_use_kept(use, goal)]
    is_judged = goal is not None
    mean = mean_of(use.times.training_seconds for use in counted if not use.result.diverged)
    before = [
        is_kept(goal, run.converged_accuracy, diverged=run.diverged) is not False
        for run in policy.evidence
        if run.switch_percent == policy.switch_percent
    ]
    return UseSummary(
        uses=len(counted),
        kept=len(kept) if is_judged else None,
        alarms=sum(bool(use.failed_with(second)) for use in counted),
        kept_after_alarm=sum(bool(use.failed_with(second)) for use in kept) if is_judged else None,
        mean_training_seconds=mean,
        speed_up=policy.measured.baseline_seconds / mean
        if policy.measured.baseline_seconds and mean
        else None,
        last_ended_at=max((use.ended_at for use in counted if use.ended_at), default=None),
        drift=drift_of([*before, *switches_kept(policy, counted, goal)]),
        collapsed=len(accuracies_alone(counted)) - len(accuracies_alone(counted, limit)),
    )


def switches_kept(
    policy: TimingPolicy, uses: Sequence[StoredTrial], goal: Goal | None
) -> list[bool]:
    """Returns whether the switch of a version kept the accuracy, for each use with it.

    A run that went back did not keep it. Without a target, all others count as kept.
    """
    mine = (policy.version, policy.switch_percent)
    return [
        not use.failed_with(policy.protocols.second_protocol)
        and is_use_kept(use, goal) is not False
        for use in uses
        if (use.origin.policy_version, use.switch_percent) == mine
    ]


def is_use_kept(use: StoredTrial, goal: Goal | None) -> bool | None:
    """Returns whether a use of a policy lost no more than it may; None without a target."""
    assert use.result.converged_accuracy is not None  # a use is complete
    return is_kept(goal, use.result.converged_accuracy, diverged=bool(use.result.diverged))


# Number of newest runs that are compared with all before them.
_NEWEST = 10
# With fewer former ones, even ten failures in a row may be nothing new.
_LEAST_FORMER = 5
# Largest chance to see so few kept in a job that has not changed. As it is computed after each
# use, one of 60 such jobs is reported by mistake within a hundred uses.
_CHANCE = 0.001


@dataclass(frozen=True, slots=True)
class Drift:
    """The newest runs keep the accuracy much less often than the former ones.

    Attributes:
        newest: Number of newest runs.
        newest_kept: How many of them keep it.
        former: Number of runs before them.
        former_kept: How many of those keep it.
    """

    newest: int
    newest_kept: int
    former: int
    former_kept: int


def drift_of(kept: Sequence[bool]) -> Drift | None:
    """Tests whether a job has changed; returns None if not.

    Fisher's exact test, one-sided, of the last ten runs against all before them; `kept` says
    whether the switch kept the accuracy, for each run at one switch point, oldest first.
    """
    former, newest = kept[:-_NEWEST], kept[-_NEWEST:]
    if len(former) < _LEAST_FORMER:
        return None
    found = Drift(len(newest), sum(newest), len(former), sum(former))
    return found if _chance(found) < _CHANCE else None


def _chance(drift: Drift) -> float:
    """Returns the chance that this few of the kept runs, or fewer, are among the newest."""
    everything = drift.newest + drift.former
    all_kept = drift.newest_kept + drift.former_kept
    ways = sum(
        math.comb(all_kept, number) * math.comb(everything - all_kept, drift.newest - number)
        for number in range(drift.newest_kept + 1)
    )
    return ways / math.comb(everything, drift.newest)
