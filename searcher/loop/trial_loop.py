"""Makes the runs of a study, one after the other, until somebody has what it wants of them.

The loop keeps no state that matters: whatever happens to it, the next one goes on from the
database.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

from syncswitch.searcher.loop.other_pairs import OtherPairs
from syncswitch.searcher.loop.reporter import Reporter
from syncswitch.searcher.loop.shared_checkpoints import DEFAULT_FOLDER, Prefixes
from syncswitch.searcher.loop.trial_runner import TrialRunner
from syncswitch.searcher.strategies.base import Strategy, Wait
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.searcher.study.plan import SearchPlan, study_name
from syncswitch.searcher.study.repair import Patience, Repairer
from syncswitch.searcher.study.state import SearchState
from syncswitch.searcher.study.study import SearchStudy
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import DatabaseAwayError, RetryableError
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.trials.events import condition_values
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, SearchInfo
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack

_T = TypeVar("_T")


class LoopOptions(TypedDict, total=False):
    """How trials are made, whatever they are for.

    Attributes:
        reference: Normal form of what the user called the workload.
        reporter: Is told how it goes on.
        patience: How long to wait for what.
        checkpoints: Folder for the checkpoints that trials share.
        speculate: Whether trials may be made that are only likely to be needed, where others make
            those that are.
        other_pairs: Searches of the same job with other second protocols, whose runs count as far
            as they are this search's, too.
    """

    reference: str | None
    reporter: Reporter | None
    patience: Patience | None
    checkpoints: Path
    speculate: bool
    other_pairs: Sequence[str]


class TrialLoop:
    """A study, and what makes its runs.

    Attributes:
        study: Optuna's account.
        store: Ours.
        strategy: Of the study: what its first writer registered, which a later one cannot change.
        prefixes: The checkpoints that its runs share.
    """

    def __init__(
        self,
        database: Database,
        identity: WorkloadIdentity,
        plan: SearchPlan,
        strategy: Strategy,
        open_trainer: Callable[[], Trainer],
        *,
        is_decided: Callable[[], bool] = lambda: False,
        **options: Unpack[LoopOptions],
    ) -> None:
        """Opens the study; raises UserError where the database cannot be used.

        Args:
            database: Holds Optuna's tables and ours.
            identity: What is trained.
            plan: Names the study.
            strategy: The plan's, with what its first writer adds from the database.
            open_trainer: Called when the first run is needed, and again after a failure.
            is_decided: Says that the runs under way are needed no longer.
            **options: See `LoopOptions`.
        """
        self._open_trainer = open_trainer
        self._plan = plan
        self._reporter = options.get("reporter") or Reporter()
        self._patience = options.get("patience") or Patience()
        self._owner = Owner.current()
        self.store = TrialStore(database)
        name = study_name(identity, plan)
        reference = options.get("reference") or identity.name
        known = self.store.register(identity, reference, _info(name, identity, plan, strategy))
        self.strategy = stored_strategy(known)
        # A budget is kept by the runs that are needed; others would come on top of it.
        speculate = options.get("speculate", True) and "budget" not in self.strategy.options
        self.study = SearchStudy.open(
            database.url, name, self.strategy, plan.base_seed, speculate=speculate
        )
        self.study.describe(_description(identity, plan.conditions, self.strategy))
        others = OtherPairs(self.store, options.get("other_pairs", ()))
        # Equal studies of two databases have equal names.
        place = hashlib.sha256(database.url.encode()).hexdigest()[:8]
        self.prefixes = Prefixes(
            self.store,
            name,
            self.strategy,
            options.get("checkpoints", DEFAULT_FOLDER) / place,
            # Otherwise what happens to a run before a checkpoint decides how it goes on after it.
            may_share=plan.conditions.is_undisturbed,
            others=others,
        )
        self._runner = TrialRunner(
            identity,
            plan.conditions,
            self.strategy,
            self.study,
            self.store,
            self.prefixes,
            self._reporter,
            self._patience.heartbeat_interval_seconds,
            is_decided,
            plan.trainer,
            others,
        )
        self._repairer = Repairer(self.study, self.store, self._patience)
        self._trainer: Trainer | None = None
        self._failures_in_a_row = 0
        self._away_since: float | None = None

    def run(self, move: Callable[[SearchState], PlannedTrial | Wait | _T]) -> _T:
        """Makes the runs that are wanted.

        `KeyboardInterrupt` gives the current run back and is raised again.

        Args:
            move: Says what to do in a state of the search: the run that it plans, to wait for
                others, or the answer.

        Raises:
            UserError: The trainer refuses the workload, or `move` does.
            RetryableError: Too many runs in a row failed, or the database stays away.
        """
        try:
            while True:
                try:
                    state = self._look()
                    match move(state):
                        case PlannedTrial():
                            self._make(state)
                        case Wait(switch_percent):
                            self._reporter.on_wait(switch_percent)
                            time.sleep(self._patience.poll_seconds)
                        case answer:
                            return answer
                except RetryableError as error:
                    self._try_again(error)
                else:
                    self._failures_in_a_row, self._away_since = 0, None
        finally:
            self._close_trainer()

    def report(self, state: SearchState) -> None:
        """Tells the reporter how far the search is.

        Raises:
            UserError: The baseline diverged.
        """
        progress = self.strategy.progress(state.course.runs)
        most_runs = self.strategy.most_runs if self.strategy.repeats else None
        self._reporter.on_state(len(state.finished), most_runs, progress)

    def _make(self, state: SearchState) -> None:
        """The run that is planned, unless others took all that are needed."""
        if self._trainer is None:
            self._trainer = self._open_trainer()
        claim = self.study.claim(state, self._owner, self._plan.base_seed, self._look_again)
        if claim is not None:
            try:
                self._runner.run(claim, self._trainer)
            except RetryableError:
                # What lost its infrastructure makes no further run.
                self._close_trainer()
                raise

    def _try_again(self, error: RetryableError) -> None:
        """Waits a little before the next attempt; raises RetryableError where it was the last."""
        if isinstance(error, DatabaseAwayError):
            self._wait_for_database(error)
            return
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self._patience.attempts:
            raise RetryableError(
                f"gave up after {self._failures_in_a_row} failures in a row, the last one: {error};"
                " the runs made so far are kept, and the same command goes on from them"
            ) from error
        time.sleep(self._patience.retry_seconds)

    def _wait_for_database(self, error: DatabaseAwayError) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            self._reporter.on_database_away(self._patience.restart_seconds)
        elif now - self._away_since >= self._patience.restart_seconds:
            raise RetryableError(
                f"gave up after {now - self._away_since:.0f} s without the database: {error};"
                " the runs made so far are kept, and the same command goes on from them"
            ) from error
        time.sleep(self._patience.retry_seconds)

    def _look(self) -> SearchState:
        state, stale = self._repairer.repaired()
        if stale:
            self._reporter.on_repaired(stale)
        return state

    def _look_again(self) -> SearchState:
        time.sleep(min(0.05, self._patience.poll_seconds))
        return self._look()

    def _close_trainer(self) -> None:
        trainer, self._trainer = self._trainer, None
        if trainer is not None:
            trainer.close()


def _description(
    identity: WorkloadIdentity, conditions: RunConditions, strategy: Strategy
) -> dict[str, str | int]:
    """What Optuna's tools show of the search; of the conditions what is not usual."""
    usual = condition_values(RunConditions())
    shown = {**condition_values(conditions), "simulated_cluster": identity.simulated_cluster}
    return {
        **{name: text for name, text in shown.items() if text not in (None, usual.get(name))},
        "workload": identity.name,
        "workers": identity.workers,
        "protocols": identity.pair,
        "strategy": strategy.name,
    }


def _info(
    name: str, identity: WorkloadIdentity, plan: SearchPlan, strategy: Strategy
) -> SearchInfo:
    return SearchInfo(
        study=name,
        fingerprint=identity.fingerprint,
        strategy=strategy.name,
        settings=strategy.settings,
        runs=strategy.runs,
        threshold=strategy.threshold,
        target_accuracy=strategy.target_accuracy,
        trainer=plan.trainer,
        base_seed=plan.base_seed,
        options=strategy.options,
        pairs=list(plan.pairs),
    )
