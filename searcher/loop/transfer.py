"""How a policy that was found for one job does on another one (Sync-Switch paper, Fig. 14).

The job is trained with the policy, with its first protocol alone, and with its own policy where it
has one. Runs of it that the database has already count; only what is missing is made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from syncswitch.searcher.loop.trial_loop import LoopOptions, TrialLoop
from syncswitch.searcher.results.transfer import EvaluationResult, evaluated_switch_point
from syncswitch.searcher.strategies.base import Wait
from syncswitch.searcher.strategies.baseline import check_baseline
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.searcher.study.plan import SearchPlan, replicate_seed
from syncswitch.searcher.study.state import SearchState
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.rows import CURRENT
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialSpec, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.trainers.job.schedule import switch_worker_step
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
        self._policy, self._identity = policy, identity
        self._trainer, self._conditions = trainer, conditions
        self._own_policy = _own_policy(PolicyRegistry(database), identity, policy)
        strategy = _strategy(policy, self._own_policy, runs)
        plan = SearchPlan(strategy, trainer=trainer, base_seed=base_seed, conditions=conditions)
        plan.check()
        check_switch(identity, policy)
        recorded = usable_runs(TrialStore(database), identity, trainer, conditions)
        _check_baseline(recorded)
        wanted = missing_runs(recorded, strategy.percents, runs, base_seed)
        self._loop = TrialLoop(
            database,
            identity,
            plan,
            replace(strategy, wanted=wanted),
            open_trainer,
            **options,
        )
        self.study_name = self._loop.study.name

    def run(self) -> EvaluationResult:
        """Makes the runs that are missing, and compares.

        `KeyboardInterrupt` gives the current run back and is raised again.

        Raises:
            UserError: The baseline diverged, or the trainer refuses the workload.
            RetryableError: Too many runs in a row failed.
        """
        return self._loop.run(self._move)

    def _result(self, new_runs: int) -> EvaluationResult:
        recorded = usable_runs(self._loop.store, self._identity, self._trainer, self._conditions)
        _check_baseline(recorded)
        own = self._own_policy
        return EvaluationResult(
            policy=self._policy,
            identity=self._identity,
            conditions=self._conditions,
            study=self._loop.study.name,
            new_runs=new_runs,
            foreign=evaluated_switch_point(self._policy.switch_percent, recorded),
            baseline=evaluated_switch_point(BASELINE_PERCENT, recorded),
            own_policy=own,
            own=None if own is None else evaluated_switch_point(own.switch_percent, recorded),
        )

    def _move(self, state: SearchState) -> EvaluationResult | PlannedTrial | Wait:
        """The comparison, once all runs are made; else what is missing."""
        self._loop.report(state)
        if self._loop.strategy.progress(state.finished).open_percent is None:
            return self._result(len(state.finished))
        planned = state.plan
        assert isinstance(planned, PlannedTrial | Wait)  # a comparison decides nothing
        return planned


def check_switch(identity: WorkloadIdentity, policy: TimingPolicy) -> None:
    """Makes sure that the second protocol of a switch gets some of a job; the first always does.

    Raises WorkloadError where the job is too short.
    """
    percent, W = policy.switch_percent, identity.total_worker_steps
    step = switch_worker_step(TrialSpec(identity, percent, seed=0))
    if percent < 100 and step == W:
        raise WorkloadError(
            f"workload {identity.name!r} is too short for a switch at {percent:g} %: of its {W:,}"
            f" worker-steps on {identity.workers} workers that leaves {identity.second_protocol}"
            " none; give it more worker-steps, or use fewer --workers"
        )


def usable_runs(
    store: TrialStore,
    identity: WorkloadIdentity,
    trainer: str,
    conditions: RunConditions,
) -> list[StoredTrial]:
    """The recorded runs of a job that may be compared with each other.

    They are of searches and evaluations, by the same kind of trainer, under the same conditions,
    made to their end: how accurate a stopped run would have become is not known. Of a switch
    point's runs with the same seed, which may be one and the same training, the first counts.
    """
    searches = store.searches(workload=identity.fingerprint)
    studies = {search.study for search in searches if search.trainer == trainer}
    found: dict[tuple[float, int | None], StoredTrial] = {}
    for row in store.trials(fingerprint=identity.fingerprint):
        is_whole = row.state == TrialState.COMPLETE and not row.stopped_early
        if row.study in studies and is_whole and row.conditions == conditions:
            found.setdefault((row.switch_percent, row.seed), row)
    return list(found.values())


def missing_runs(
    recorded: Sequence[StoredTrial], percents: Iterable[float], runs: int, base_seed: int
) -> tuple[tuple[float, int], ...]:
    """Switch point and replicate of each run that is to be made, so that there are `runs` of each.

    What has the seed of a recorded run is not made again.
    """
    wanted: list[tuple[float, int]] = []
    for percent in percents:
        seeds = {row.seed for row in recorded if row.switch_percent == percent}
        fresh = (n for n in itertools.count() if replicate_seed(base_seed, n) not in seeds)
        missing = max(0, runs - len(seeds))
        wanted += [(percent, replicate) for replicate in itertools.islice(fresh, missing)]
    return tuple(wanted)


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


def _check_baseline(recorded: Iterable[StoredTrial]) -> None:
    """Before anything is trained for nothing. Raises UserError."""
    check_baseline(
        Observation(row.switch_percent, row.converged_accuracy or 0.0, bool(row.diverged))
        for row in recorded
        if row.switch_percent == BASELINE_PERCENT
    )
