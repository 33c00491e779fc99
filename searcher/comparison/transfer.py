"""How a policy that was found for one job does on another one (Sync-Switch paper, Fig. 14).

The job is trained with the policy, with its first protocol alone, and with its own policy where it
has one. Runs of it that the database has already count; only what is missing is made.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.searcher.comparison.making import Comparison
from syncswitch.searcher.search.trial_loop import LoopOptions
from syncswitch.searcher.simulation.estimates import mean
from syncswitch.searcher.speed_up import SpeedUp, measured_speed_up
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.searcher.strategies.observation import ROUNDING
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


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


class PolicyEvaluation:
    """Trains a job with a policy that was found for another one.

    Two evaluations with the same arguments on the same database are one: the second goes on where
    the first was, shares its work, or answers at once. No policy is published.
    """

    def __init__(
        self,
        database: Database,
        identity: WorkloadIdentity,
        policy: TimingPolicy,
        open_trainer: Callable[[], Trainer],
        *,
        runs: int = 3,
        trainer: str = "local",
        base_seed: int = 0,
        conditions: RunConditions = RunConditions(),  # noqa: B008 (frozen)
        **options: Unpack[LoopOptions],
    ) -> None:
        """Opens the study.

        Args:
            database: Holds Optuna's tables and ours.
            identity: The job.
            policy: What it is trained with.
            open_trainer: Called when the first run is needed, and again after a failure.
            runs: R, how many runs of each switch point there are to be.
            trainer: Kind of trainer: runs of other kinds do not count.
            base_seed: The seeds of all runs derive from it.
            conditions: Under which the job trains: runs under other ones do not count.
            **options: See `LoopOptions`.

        Raises:
            UserError: A number is out of range, the job is too short for the policy, its baseline
                diverged, or the database cannot be used.
        """
        self._policy, self._identity, self._conditions = policy, identity, conditions
        self._own_policy = _own_policy(PolicyRegistry(database), identity, policy)
        self._comparison = Comparison(
            database,
            identity,
            _strategy(policy, self._own_policy, runs),
            open_trainer,
            trainer=trainer,
            base_seed=base_seed,
            conditions=conditions,
            **options,
        )
        self.study_name = self._comparison.study_name

    def run(self) -> EvaluationResult:
        """Makes the runs that are missing, and compares.

        `KeyboardInterrupt` gives the current run back and is raised again.

        Raises:
            UserError: The baseline diverged, or the trainer refuses the workload.
            RetryableError: Too many runs in a row failed.
        """
        compared = self._comparison.run()
        own = self._own_policy
        return EvaluationResult(
            policy=self._policy,
            identity=self._identity,
            conditions=self._conditions,
            study=self.study_name,
            new_runs=compared.new_runs,
            foreign=evaluated_switch_point(self._policy.switch_percent, compared.rows),
            baseline=evaluated_switch_point(BASELINE_PERCENT, compared.rows),
            own_policy=own,
            own=None if own is None else evaluated_switch_point(own.switch_percent, compared.rows),
        )


def _strategy(policy: TimingPolicy, own: TimingPolicy | None, runs: int) -> ComparisonStrategy:
    percents = [BASELINE_PERCENT, policy.switch_percent]
    if own is not None:
        percents.append(own.switch_percent)
    different = tuple(dict.fromkeys(percents))
    return ComparisonStrategy(len(different), runs, policy.threshold, percents=different)


def _own_policy(
    registry: PolicyRegistry, identity: WorkloadIdentity, policy: TimingPolicy
) -> TimingPolicy | None:
    version = registry.aliases(identity.fingerprint).get(CURRENT)
    own = None if version is None else registry.get(identity.fingerprint, version)
    if own is not None and own.fingerprint == policy.fingerprint:
        # A file does not say which version it is here.
        return None if own.switch_percent == policy.switch_percent else own
    return own
