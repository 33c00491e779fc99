"""The loop of a search: ask for a run, make it, record and tell it, until there is an answer.

Nothing that matters is kept in memory: whatever happens to a searcher, the next one goes on from
the database.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

from syncswitch.searcher.search.checkpoints import DEFAULT_FOLDER, Prefixes, check_storable
from syncswitch.searcher.search.observer import TrialObserver, planned_switch_worker_step
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.recorded import recorded_result, sweep_band
from syncswitch.searcher.search.reporter import ReportedTrial, Reporter
from syncswitch.searcher.search.study import Claim, Patience, SearchState, begin_study
from syncswitch.searcher.strategies.base import Strategy, Wait
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import (
    DatabaseAwayError,
    FatalError,
    RetryableError,
    SyncSwitchError,
    UserError,
    reason_of,
)
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.trial import TrialRecord, TrialSpec, TrialState
from syncswitch.storage.trials.possible import check_run
from syncswitch.storage.trials.values import CANCELLED, INTERRUPTED, Fork, Owner
from syncswitch.trainers.run.tensorboard import logged
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


_LOG = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class LoopOptions(TypedDict, total=False):
    """Options for making runs, whatever they are for.

    `reference` is the normal form of the user's name for the workload, `study` the name of a search
    over several pairs of protocols.
    """

    reference: str | None
    reporter: Reporter | None
    patience: Patience | None
    checkpoints: Path
    tensorboard: Path | None
    study: str


class TrialLoop(ABC, Generic[_Answer]):
    """Makes the runs of a study, one after the other, until `move` returns an answer.

    `strategy` is the one that the study was first registered with; it never changes.
    """

    def __init__(
        self,
        database: Database,
        identity: ScheduledJob,
        plan: SearchPlan,
        open_trainer: Callable[[], Trainer],
        **options: Unpack[LoopOptions],
    ) -> None:
        """Opens the study.

        `open_trainer` is called when the first run is needed, and again after a failure. Raises
        UserError if the plan is out of range, or the database cannot be used.
        """
        plan.check()
        folder = options.get("checkpoints", DEFAULT_FOLDER)
        if plan.strategy.share_prefix and plan.conditions.is_undisturbed:
            check_storable(folder)
        self._database, self._identity, self._plan = database, identity, plan
        self._open_trainer, self._tensorboard = open_trainer, options.get("tensorboard")
        self.reporter = options.get("reporter") or Reporter()
        self.patience = options.get("patience") or Patience()
        self._owner = Owner.current()
        self.study = begin_study(
            database, identity, plan, options.get("reference"), options.get("study")
        )
        self.store, self.study_name = self.study.store, self.study.name
        self.strategy = self.study.strategy
        self._told_threshold = self.strategy.threshold
        # Studies of two databases may have the same name.
        place = hashlib.sha256(database.url.encode()).hexdigest()[:8]
        self.prefixes = Prefixes(
            self.store,
            self.study_name,
            self.strategy,
            folder / place,
            # What disturbs a run before a checkpoint would go on after it.
            may_share=plan.conditions.is_undisturbed,
        )
        self._trainer: Trainer | None = None
        self._failures_in_a_row = 0
        self._away_since: float | None = None
        self._has_warned = False

    @abstractmethod
    def move(self, state: SearchState) -> PlannedTrial | Wait | _Answer:
        """Returns the next run, that others have to be waited for, or the answer."""

    def is_decided(self) -> bool:
        return False

    def run(self) -> _Answer:
        """Makes the runs that are missing, and returns the answer.

        `KeyboardInterrupt` gives the current run back and is raised again. Raises UserError if the
        baseline diverged or the trainer refuses the workload, and RetryableError if too many runs
        in a row failed or the database stays away.
        """
        try:
            while True:
                try:
                    state = self._look()
                    match self.move(state):
                        case PlannedTrial():
                            self._make(state)
                        case Wait(switch_percent):
                            self.reporter.on_wait(switch_percent)
                            time.sleep(self.patience.poll_seconds)
                        case answer:
                            return answer
                except RetryableError as error:
                    self._try_again(error)
                else:
                    self._failures_in_a_row, self._away_since = 0, None
        finally:
            self._close_trainer()

    def report(self, state: SearchState) -> None:
        progress = self.strategy.progress(state.course.runs)
        threshold = state.measured_strategy.threshold
        if threshold != self._told_threshold:
            self._told_threshold = threshold
            self.store.set_threshold(self.study_name, threshold)
            self.reporter.on_threshold(state.measured_strategy, self._identity)
        most_runs = self.strategy.most_runs if self.strategy.repeats else None
        self.reporter.on_state(len(state.finished), most_runs, progress)

    def _make(self, state: SearchState) -> None:
        """Makes the planned run, unless others took all that are needed."""
        if self._trainer is None:
            self._trainer = logged(self._open_trainer(), self._tensorboard, self.study_name)
        claim = self.study.claim(state, self._owner, self._plan.base_seed, self._look_again)
        if claim is not None:
            try:
                self.run_trial(claim, self._trainer)
            except RetryableError:
                # A trainer that lost its infrastructure makes no further run.
                self._close_trainer()
                raise

    def _try_again(self, error: RetryableError) -> None:
        """Waits a little before the next attempt; raises RetryableError after the last one."""
        patience, gave_up = self.patience, None
        if isinstance(error, DatabaseAwayError):
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                self.reporter.on_database_away(patience.restart_seconds)
            elif now - self._away_since >= patience.restart_seconds:
                gave_up = f"{now - self._away_since:.0f} s without the database"
        else:
            self._failures_in_a_row += 1
            if self._failures_in_a_row >= patience.attempts:
                gave_up = f"{self._failures_in_a_row} failures in a row"
        if gave_up is not None:
            raise RetryableError(
                (
                    f"gave up after {gave_up} (the runs made so far are kept, and the same command"
                    " goes on from them): ",
                    error,
                )
            ) from error
        time.sleep(patience.retry_seconds)

    def _look(self) -> SearchState:
        state, stale = self.study.repaired(self.patience)
        if stale:
            self.reporter.on_repaired(stale)
        return state

    def _look_again(self) -> SearchState:
        time.sleep(min(0.05, self.patience.poll_seconds))
        return self._look()

    def _close_trainer(self) -> None:
        trainer, self._trainer = self._trainer, None
        if trainer is not None:
            trainer.close()

    def run_trial(self, claim: Claim, trainer: Trainer) -> None:
        """Makes a claimed run: begins, trains, records and tells it, in this order.

        Once it is recorded it is never given back; if it cannot be told, the next repair does it.
        Infrastructure that fails raises RetryableError; the run is then given back.
        """
        trial = ReportedTrial(
            number=claim.number,
            switch_percent=claim.switch_percent,
            repeat=claim.replicate + 1,
            repeats=self.strategy.runs_at(claim.switch_percent),
            identity=self._identity,
            is_speculative=claim.is_speculative,
        )
        self.reporter.on_run(trial)
        try:
            record, is_cancelled = self._trained(claim, trial, trainer)
            if is_cancelled:
                self.store.cancel(self.study_name, claim.number, record, CANCELLED)
            else:
                _check(record)
                plateau = self._plateau_accuracy(record, claim.state.measured_strategy)
                self.store.complete(self.study_name, claim.number, record, plateau)
        except BaseException as error:
            self._give_back(claim.number, error)
            if isinstance(error, RetryableError):
                self.reporter.on_failed(trial, self.reporter.words.say(error))
            raise
        if is_cancelled:
            self.reporter.on_cancelled(trial, record)
            self.study.fail(claim.number)
            return
        self.reporter.on_finished(trial, record)
        self.study.note_result(claim.number, record.diverged, record.training_seconds)
        self.study.complete(claim.number, record.converged_accuracy)

    def _trained(
        self, claim: Claim, trial: ReportedTrial, trainer: Trainer
    ) -> tuple[TrialRecord, bool]:
        """Trains the run, unless it is recorded: its record, and whether it was cancelled."""
        wanted = TrialSpec(self._identity, claim.switch_percent, claim.seed, claim.replicate)
        wanted = replace(wanted, conditions=self._plan.conditions)
        band = sweep_band(self.store, self.strategy, wanted, self._plan.trainer)
        wanted = replace(wanted, band=band)
        recorded = recorded_result(self.store, wanted, self._plan.trainer)
        if recorded is not None:
            self._begin(claim, wanted, None)
            return recorded, False
        while True:
            spec, fork = self.prefixes.with_checkpoint(wanted, claim.number)
            self._begin(claim, spec, fork)
            if not self.study.is_running(claim.number):
                raise RetryableError(
                    f"run {claim.number} was considered stale before it began", code="taken-over"
                )
            try:
                observer = TrialObserver(
                    self.study,
                    self.reporter,
                    trial,
                    spec,
                    claim.state,
                    is_decided=self.is_decided,
                    warn=self._warn_once,
                    interval_seconds=self.patience.heartbeat_interval_seconds,
                )
                return observer.with_alarm(trainer.train(spec, observer)), observer.is_cancelled
            except UserError as error:
                if spec.fork_from is None:
                    raise
                # The run can be made without its checkpoint; a true fault shows again then.
                self.prefixes.distrust(spec.fork_from)
                self.reporter.on_failed(trial, self.reporter.words.say(error))

    def _begin(self, claim: Claim, spec: TrialSpec, fork: Fork | None) -> None:
        self.store.begin(
            self.study_name,
            claim.number,
            spec,
            self._owner,
            fork=fork,
            speculative=claim.is_speculative,
        )

    def _warn_once(self, word: str) -> None:
        """Warns early of a search that makes no sense, as runs may take hours."""
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(word)

    def _plateau_accuracy(self, record: TrialRecord, strategy: Strategy) -> float | None:
        """The accuracy that a run made to its end would have had if it were stopped."""
        is_known = strategy.early_stop and strategy.threshold > 0
        if not is_known or record.stopped_early or record.diverged:
            return None
        stop = StopRule.of(strategy, self._identity.recipe.learning_rate_boundaries)
        evaluations = (*record.spec.inherited_evaluations, *record.evaluations)
        return stop.plateau_accuracy(evaluations, planned_switch_worker_step(record.spec))

    def _give_back(self, number: int, error: BaseException) -> None:
        """Lets the run be made again; if this cannot be written now, the next repair does it."""
        self.study.stale.add(number)
        with contextlib.suppress(SyncSwitchError):
            row = self.store.get(self.study_name, number)
            if row is not None and row.state == TrialState.COMPLETE:
                return  # interrupted after the result was stored: the next repair tells it
            is_interrupt = isinstance(error, KeyboardInterrupt)
            reason = INTERRUPTED if is_interrupt else self.reporter.words.say(reason_of(error))
            self.store.fail(self.study_name, number, " ".join(reason.split())[:500])
            self.study.fail(number)


def _check(record: TrialRecord) -> None:
    try:
        check_run(record)
    except FatalError as error:
        raise FatalError(
            ("the trainer reported an impossible run: ", error),
            remedy="check the metric and the times that the workload reports",
            code="result-invalid",
        ) from error
