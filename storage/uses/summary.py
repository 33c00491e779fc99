"""How well a policy does in the runs that used it; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.drift import Drift, drift_of


@dataclass(frozen=True, slots=True)
class UseSummary:
    """The uses of one version of a policy, those under disturbances on purpose aside.

    Attributes:
        uses: So many runs.
        kept: Of these, those that did not diverge and lost at most beta.
        alarms: Of all, those that the guard sent back to the switch: the policy's own switch failed
            there, though the run may be kept.
        kept_after_alarm: How many of those are kept.
        mean_training_seconds: Of the runs that did not diverge; None where there is none.
        speed_up: The policy's baseline over that mean; None where either is unknown.
        last_ended_at: End of the last use; None without one.
        drift: The newest uses keep the accuracy less often than those before; None where not.
    """

    uses: int
    kept: int
    alarms: int
    kept_after_alarm: int
    mean_training_seconds: float | None
    speed_up: float | None
    last_ended_at: datetime | None
    drift: Drift | None = None


@dataclass(frozen=True, slots=True)
class UseObservation:
    """A use as evidence on its switch point.

    Attributes:
        policy_version: That it trained with.
        guard: `alarmed` where it sent the run back; then the switch failed, whatever `accuracy` the
            run reached with a later one, or without.
        seconds: Training time, what an alarm cost included.
    """

    policy_version: int
    switch_percent: float
    seed: int | None
    accuracy: float
    diverged: bool
    seconds: float
    guard: str | None
    ended_at: datetime


OBSERVED = (
    "policy_version",
    "switch_percent",
    "seed",
    "converged_accuracy",
    "diverged",
    "training_seconds",
    "guard",
    "ended_at",
)
"""Columns of a trial, in the order of the fields of `UseObservation`."""


def observation_of(use: StoredTrial) -> UseObservation:
    """Reduces a stored use to what it shows of its switch point."""
    return UseObservation(*(getattr(use, name) for name in OBSERVED))


def is_kept(accuracy: float, diverged: bool, target_accuracy: float, threshold: float) -> bool:
    """Whether a run that ended with this accuracy lost no more than it may.

    A threshold of 0 is one that is yet to be measured, in runs that nothing is compared with.
    """
    return not diverged and (not threshold or accuracy >= target_accuracy - threshold)


def is_counted(use: StoredTrial) -> bool:
    """Whether it tells of its policy: what was disturbed on purpose does not."""
    return not use.conditions.injections


def use_summary(policy: TimingPolicy, uses: Iterable[UseObservation]) -> UseSummary:
    """How well a version does; other versions' uses are left out."""
    counted = [use for use in uses if use.policy_version == policy.version]
    kept = [
        use
        for use in counted
        if is_kept(use.accuracy, use.diverged, policy.target_accuracy, policy.threshold)
    ]
    seconds = [use.seconds for use in counted if not use.diverged]
    mean = statistics.fmean(seconds) if seconds else None
    return UseSummary(
        uses=len(counted),
        kept=len(kept),
        alarms=sum(use.guard == "alarmed" for use in counted),
        kept_after_alarm=sum(use.guard == "alarmed" for use in kept),
        mean_training_seconds=mean,
        speed_up=policy.baseline_seconds / mean if policy.baseline_seconds and mean else None,
        last_ended_at=max((use.ended_at for use in counted), default=None),
        drift=drift_of([*_kept_before(policy), *switches_kept(policy, counted)]),
    )


def switches_kept(policy: TimingPolicy, uses: Iterable[UseObservation]) -> list[bool]:
    """Whether the switch of a version kept the accuracy, for each use with it.

    A run that the guard sent back did not, whatever it ended with.
    """
    mine = (policy.version, policy.switch_percent)
    return [
        use.guard != "alarmed"
        and is_kept(use.accuracy, use.diverged, policy.target_accuracy, policy.threshold)
        for use in uses
        if (use.policy_version, use.switch_percent) == mine
    ]


def _kept_before(policy: TimingPolicy) -> list[bool]:
    """Whether each run that the policy rests on kept the accuracy at its switch."""
    return [
        is_kept(run.converged_accuracy, run.diverged, policy.target_accuracy, policy.threshold)
        for run in policy.evidence
        if run.switch_percent == policy.switch_percent
    ]
