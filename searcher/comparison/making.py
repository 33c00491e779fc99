"""Makes the runs of one job that are missing at given switch points.

Runs that the database has already count, whoever made them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from syncswitch.searcher.search.plan import SearchPlan, replicate_seed
from syncswitch.searcher.search.recorded import usable_runs
from syncswitch.searcher.search.study import SearchState
from syncswitch.searcher.search.trial_loop import LoopOptions, TrialLoop
from syncswitch.searcher.strategies.base import Wait
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.searcher.strategies.observation import Observation, check_baseline
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import UserError, WorkloadError
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class ComparedRuns:
    """All runs of a job that may be compared, at any switch point.

    Attributes:
        new_runs: How many of them were made for this comparison.
    """

    rows: tuple[StoredTrial, ...]
    new_runs: int


class Comparison:
    """Has a job trained at some switch points, so often at each.

    Two comparisons with the same arguments on the same database are one: the second goes on where
    the first was, shares its work, or answers at once. No policy is published.
    """

    def __init__(
        self,
        database: Database,
        identity: WorkloadIdentity,
        strategy: ComparisonStrategy,
        open_trainer: Callable[[], Trainer],
        *,
        trainer: str = "local",
        base_seed: int = 0,
        conditions: RunConditions = RunConditions(),  # noqa: B008 (frozen)
        **options: Unpack[LoopOptions],
    ) -> None:
        """Opens the study.

        Args:
            database: Holds Optuna's tables and ours.
            identity: The job.
            strategy: Its switch points, and how many runs of each there are to be.
            open_trainer: Called when the first run is needed, and again after a failure.
            trainer: Kind of trainer: runs of other kinds do not count.
            base_seed: The seeds of all runs derive from it.
            conditions: Under which the job trains: runs under other ones do not count.
            **options: See `LoopOptions`.

        Raises:
            UserError: A number is out of range, the job is too short for a switch point, its
                baseline diverged, or the database cannot be used.
        """
        self._identity, self._trainer, self._conditions = identity, trainer, conditions
        strategy = replace(strategy, accuracy_range=identity.decided_by.accuracies)
        self._has_baseline, self._guarded = strategy.has_baseline, strategy.guarded
        plan = SearchPlan(strategy, trainer=trainer, base_seed=base_seed, conditions=conditions)
        plan.check()
        for percent in strategy.percents:
            check_switch(identity, percent)
        recorded = self._usable(TrialStore(database))
        wanted = missing_runs(recorded, strategy.percents, strategy.runs, base_seed)
        self._loop = TrialLoop(
            database,
            identity,
            plan,
            replace(strategy, wanted=wanted),
            open_trainer,
            **options,
        )
        self.study_name = self._loop.study.name

    def run(self) -> ComparedRuns:
        """Makes the runs that are missing.

        `KeyboardInterrupt` gives the current run back and is raised again.

        Raises:
            UserError: The baseline diverged, or the trainer refuses the workload.
            RetryableError: Too many runs in a row failed.
        """
        return self._loop.run(self._move)

    def set_target(self, target_accuracy: float) -> None:
        """Records when each of the new runs reached this accuracy."""
        self._loop.store.set_target(self.study_name, target_accuracy)

    def _usable(self, store: TrialStore) -> list[StoredTrial]:
        recorded = usable_runs(
            store, self._identity, self._trainer, self._conditions, guarded=self._guarded
        )
        if self._has_baseline:
            _check_baseline(recorded)
        return recorded

    def _move(self, state: SearchState) -> ComparedRuns | PlannedTrial | Wait:
        """The runs, once all are made; else what is missing."""
        self._loop.report(state)
        if self._loop.strategy.progress(state.finished).open_percent is None:
            return ComparedRuns(tuple(self._usable(self._loop.store)), len(state.finished))
        planned = state.plan
        assert isinstance(planned, PlannedTrial | Wait)  # a comparison decides nothing
        return planned


def check_switch(identity: WorkloadIdentity, percent: float) -> None:
    """Makes sure that the second protocol of a switch gets some of a job; the first always does.

    Raises WorkloadError where the job is too short.
    """
    W = identity.total_worker_steps
    step = switch_worker_step(TrialSpec(identity, percent, seed=0))
    if percent < 100 and step == W:
        raise WorkloadError(
            f"workload {identity.name!r} is too short for a switch at {percent:g} %: of its {W:,}"
            f" worker-steps on {identity.workers} workers that leaves {identity.second_protocol}"
            " none; give it more worker-steps, or use fewer --workers"
        )


def check_chief(injections: Iterable[str], command: str) -> None:
    """Such a run would be made again and again. Raises UserError."""
    for text in injections:
        if text.startswith("kill:chief"):
            raise UserError(
                f"injection {text!r} cannot be used with {command}, whose runs begin afresh without"
                " their chief; try it with syncswitch-run"
            )


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


def _check_baseline(recorded: Iterable[StoredTrial]) -> None:
    """Before anything is trained for nothing. Raises UserError."""
    check_baseline(
        Observation(row.switch_percent, row.converged_accuracy or 0.0, bool(row.diverged))
        for row in recorded
        if row.switch_percent == BASELINE_PERCENT
    )
