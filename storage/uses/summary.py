"""How well a policy does in the runs that used it; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from syncswitch.storage.metrics import mean_of
from syncswitch.storage.records.policy import TimingPolicy
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


def is_kept(
    accuracy: float, diverged: bool, target_accuracy: float | None, threshold: float
) -> bool | None:
    """Returns whether a run that ended with this accuracy lost no more than it may.

    None while no target is measured. A threshold of 0 has yet to be measured, in runs that are
    compared with nothing.
    """
    if diverged:
        return False
    if target_accuracy is None:
        return None
    return not threshold or accuracy >= target_accuracy - threshold


def judged(policy: TimingPolicy, versions: Iterable[TimingPolicy]) -> TimingPolicy:
    """Returns the policy with the first target that a version measured, if it has none itself."""
    if policy.target_accuracy is not None:
        return policy
    later = sorted((one for one in versions), key=lambda one: one.version)
    known = [one for one in later if one.target_accuracy is not None]
    return replace(policy, target_accuracy=known[0].target_accuracy) if known else policy


def use_summary(policy: TimingPolicy, uses: Iterable[StoredTrial]) -> UseSummary:
    """Sums up the uses of a version; uses of other versions, and disturbed ones, are left out."""
    counted = [
        use for use in uses if use.policy_version == policy.version and use.injections is None
    ]
    kept = [use for use in counted if is_use_kept(policy, use)]
    is_judged = policy.target_accuracy is not None
    mean = mean_of(use.training_seconds for use in counted if not use.diverged)
    before = [
        is_kept(run.converged_accuracy, run.diverged, policy.target_accuracy, policy.threshold)
        is not False
        for run in policy.evidence
        if run.switch_percent == policy.switch_percent
    ]
    return UseSummary(
        uses=len(counted),
        kept=len(kept) if is_judged else None,
        alarms=sum(use.guard == "alarmed" for use in counted),
        kept_after_alarm=sum(use.guard == "alarmed" for use in kept) if is_judged else None,
        mean_training_seconds=mean,
        speed_up=policy.baseline_seconds / mean if policy.baseline_seconds and mean else None,
        last_ended_at=max((use.ended_at for use in counted if use.ended_at), default=None),
        drift=drift_of([*before, *switches_kept(policy, counted)]),
    )


def switches_kept(policy: TimingPolicy, uses: Sequence[StoredTrial]) -> list[bool]:
    """Returns whether the switch of a version kept the accuracy, for each use with it.

    A run that the guard sent back did not, whatever it ended with. Without a target any other did.
    """
    mine = (policy.version, policy.switch_percent)
    return [
        use.guard != "alarmed" and is_use_kept(policy, use) is not False
        for use in uses
        if (use.policy_version, use.switch_percent) == mine
    ]


def is_use_kept(policy: TimingPolicy, use: StoredTrial) -> bool | None:
    """Returns whether a use of a policy lost no more than it may; None without a target."""
    assert use.converged_accuracy is not None  # a use is complete
    diverged = bool(use.diverged)
    return is_kept(use.converged_accuracy, diverged, policy.target_accuracy, policy.threshold)


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
