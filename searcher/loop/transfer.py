"""How a policy that was found for one job does on another one (Sync-Switch paper, Fig. 14).

The job is trained with the policy, with its first protocol alone, and with its own policy where it
has one. Runs of it that the database has already count; only what is missing is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from syncswitch.searcher.loop.comparison import Comparison
from syncswitch.searcher.loop.trial_loop import LoopOptions
from syncswitch.searcher.results.transfer import EvaluationResult, evaluated_switch_point
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.rows import CURRENT
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    if own is not None and own.later_switches != policy.later_switches:
        return None  # its runs and those of the policy are not made under the same conditions
    if own is not None and own.fingerprint == policy.fingerprint:
        # A file does not say which version it is here.
        return None if own.switch_percent == policy.switch_percent else own
    return own
