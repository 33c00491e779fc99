"""What an evaluation of a policy measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from syncswitch.searcher.results.estimates import mean
from syncswitch.searcher.results.speed_up import SpeedUp, measured_speed_up
from syncswitch.searcher.strategies.baseline import ROUNDING
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.values import StoredTrial


@dataclass(frozen=True, slots=True)
class EvaluatedSwitchPoint:
    """What the runs of a switch point measured; means are over those that did not diverge.

    Attributes:
        runs: Those that count.
        accuracy_half_width: Half of its 95 % confidence interval (Student's); None for fewer than
            two runs.
        training_seconds: Mean; None where all diverged.
        accuracies: Of those that did not diverge.
        seconds: Training times of the same runs, as far as they are known.
    """

    switch_percent: float
    runs: int
    diverged_runs: int
    mean_accuracy: float | None
    accuracy_half_width: float | None
    training_seconds: float | None
    accuracies: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """A policy on a job that it was not found for.

    Attributes:
        study: Name of the study that holds the runs made for this.
        new_runs: How many that are.
        foreign: The job with this policy.
        baseline: The job with its first protocol alone.
        own_policy: The job's own; None where it has none, or is the one that was evaluated.
        own: The job with that.
    """

    policy: TimingPolicy
    identity: WorkloadIdentity
    conditions: RunConditions
    study: str
    new_runs: int
    foreign: EvaluatedSwitchPoint
    baseline: EvaluatedSwitchPoint
    own_policy: TimingPolicy | None
    own: EvaluatedSwitchPoint | None

    @property
    def keeps_accuracy(self) -> bool:
        """No run diverged, and the mean is within the policy's threshold of the baseline's."""
        if self.foreign.diverged_runs:
            return False
        accuracy, target = self.foreign.mean_accuracy, self.baseline.mean_accuracy
        assert accuracy is not None  # no run diverged
        assert target is not None  # such a job is refused
        return accuracy - target >= -self.policy.threshold - ROUNDING

    def kept_runs(self, switch_point: EvaluatedSwitchPoint) -> int:
        """Runs that lose at most the policy's threshold against the baseline's mean."""
        target = self.baseline.mean_accuracy
        assert target is not None  # such a job is refused
        least = target - self.policy.threshold - ROUNDING
        return sum(accuracy >= least for accuracy in switch_point.accuracies)

    def measured_speed_up(self, switch_point: EvaluatedSwitchPoint | None) -> SpeedUp | None:
        """Times as fast as the first protocol alone; None where all runs diverged."""
        if switch_point is None:
            return None
        switch_points = filter(None, (self.foreign, self.own, self.baseline))
        seconds = {one.switch_percent: one.seconds for one in switch_points}
        return measured_speed_up(seconds, switch_point.switch_percent, self.baseline.switch_percent)

    def speed_up(self, switch_point: EvaluatedSwitchPoint | None) -> float | None:
        """The same without its interval."""
        found = self.measured_speed_up(switch_point)
        return found.value if found else None

    @property
    def share_of_own_speed_up(self) -> float | None:
        """The policy's speed-up over that of the job's own; None where either is unknown."""
        mine, own = self.speed_up(self.foreign), self.speed_up(self.own)
        return None if mine is None or own is None else mine / own


def evaluated_switch_point(percent: float, recorded: Iterable[StoredTrial]) -> EvaluatedSwitchPoint:
    """What the complete runs of one switch point measured, of runs at any."""
    runs = [row for row in recorded if row.switch_percent == percent]
    sound = [row for row in runs if not row.diverged]
    accuracies = [row.converged_accuracy for row in sound if row.converged_accuracy is not None]
    seconds = [row.training_seconds for row in sound if row.training_seconds is not None]
    accuracy = mean(accuracies) if accuracies else None
    return EvaluatedSwitchPoint(
        switch_percent=percent,
        runs=len(runs),
        diverged_runs=len(runs) - len(sound),
        mean_accuracy=None if accuracy is None else accuracy.value,
        accuracy_half_width=accuracy.high - accuracy.value
        if accuracy is not None and len(accuracies) > 1
        else None,
        training_seconds=statistics.fmean(seconds) if seconds else None,
        accuracies=tuple(accuracies),
        seconds=tuple(seconds),
    )
