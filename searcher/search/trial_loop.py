"""Makes the runs of a study, one after the other, until somebody has what it wants of them.

The loop keeps no state that matters: whatever happens to it, the next one goes on from the
database.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from syncswitch.searcher.search.checkpoints import DEFAULT_FOLDER, Prefix, Prefixes
from syncswitch.searcher.search.early_words import never_moved
from syncswitch.searcher.search.liveness import HEARTBEAT_SECONDS, is_alive, is_run_by_anyone
from syncswitch.searcher.search.other_pairs import OtherPairs, as_whole
from syncswitch.searcher.search.plan import SearchPlan, study_name
from syncswitch.searcher.search.recorded import recorded_result
from syncswitch.searcher.search.reporter import ReportedTrial, Reporter
from syncswitch.searcher.search.study import Claim, SearchState, SearchStudy, owner_of
from syncswitch.searcher.search.trial_guard import alarmed, comparison_band, trial_guard
from syncswitch.searcher.strategies.base import Strategy, Wait
from syncswitch.searcher.strategies.early_stopping import StopRule, may_stop
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.database.engine import RESTART_SECONDS, Database
from syncswitch.storage.errors import (
    DatabaseAwayError,
    FatalError,
    RetryableError,
    SyncSwitchError,
    UserError,
)
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import (
    Evaluation,
    RunEvent,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.trials.events import condition_values
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import CANCELLED, INTERRUPTED, Owner, SearchInfo, StoredTrial
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.run.guard import Guard
from syncswitch.trainers.trainer import Trainer, Verdict

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a search waits for what.

    Attributes:
        heartbeat_seconds: A searcher on another machine that is silent for longer is dead.
        stale_seconds: A trial that nobody has begun for longer has no owner.
        heartbeat_interval_seconds: Least time between two heartbeats of a run.
        retry_seconds: Between a failed run and the next attempt.
        attempts: Failed runs in a row before the search gives up.
        restart_seconds: How long the database may be away before it does.
    """

    heartbeat_seconds: float = HEARTBEAT_SECONDS
    stale_seconds: float = 15.0
    heartbeat_interval_seconds: float = 1.0
    poll_seconds: float = 0.5
    retry_seconds: float = 2.0
    attempts: int = 3
    restart_seconds: float = RESTART_SECONDS


@dataclass
class Repairer:
    """Finishes the trials that Optuna has as running and nobody runs.

    Optuna knows which trial ran, the store what it measured. The store is written first, so the two
    differ only in trials that Optuna still has as running:

    - complete in the store: its value is told;
    - failed in the store: its failure is told;
    - running in the store, and its owner is dead: failed in both;
    - unknown to the store: failed, once its owner is dead or too long has passed.

    Optuna's own `fail_stale_trials` would fail the first kind too, and they would be made again.
    """

    study: SearchStudy
    store: TrialStore
    patience: Patience

    def __post_init__(self) -> None:
        self._first_seen: dict[int, float] = {}

    def repaired(self) -> tuple[SearchState, int]:
        """The search once its running trials were looked at, and how many of them were stale."""
        state = self.study.read(self.store)
        running = [trial for trial in state.trials if trial.state == OptunaState.RUNNING]
        settled = [self._settle(trial, state.rows.get(trial.number)) for trial in running]
        if not any(settled):
            return state, 0
        return self.study.read(self.store), settled.count("stale")

    def _settle(
        self, trial: FrozenTrial, row: StoredTrial | None
    ) -> Literal["told", "stale"] | None:
        if (
            row is not None
            and row.state == TrialState.COMPLETE
            and row.converged_accuracy is not None
        ):
            self.study.note_result(trial.number, bool(row.diverged), row.training_seconds)
            self.study.complete(trial.number, row.converged_accuracy)
            return "told"
        if not self._is_stale(trial, row) or self.store.get(self.study.name, trial.number) != row:
            return None  # the next look decides about what ended meanwhile
        # The store first: were this process killed in between, the next repair sees it.
        self.store.fail(self.study.name, trial.number, "its process ended")
        self.study.fail(trial.number)
        return "stale"

    def _is_stale(self, trial: FrozenTrial, row: StoredTrial | None) -> bool:
        if trial.number in self.study.stale:
            return True
        if row is None:
            return self._is_never_begun(trial)
        return row.state == TrialState.FAILED or not is_run_by_anyone(
            row, self.patience.heartbeat_seconds
        )

    def _is_never_begun(self, trial: FrozenTrial) -> bool:
        """Whether whoever asked for a trial is gone, or never began it."""
        owner = owner_of(trial)
        if owner is not None and owner.host == socket.gethostname():
            return not is_alive(owner)
        now = time.monotonic()
        seen = now - self._first_seen.setdefault(trial.number, now)
        return max(seen, _age_seconds(trial)) > self.patience.stale_seconds


def _age_seconds(trial: FrozenTrial) -> float:
    if trial.datetime_start is None:
        return 0.0
    # Optuna writes local time without a zone.
    return (datetime.now() - trial.datetime_start).total_seconds()


@dataclass
class TrialObserver:
    """Sends heartbeats, and decides whether to stop the trial.

    Attributes:
        trial: For the reporter.
        reporter: Is told.
        heartbeat: Records the worker-step, and the last evaluation where there was one since.
        heartbeat_interval_seconds: How often.
        stop: Says when the trial may end; None where it may not.
        inherited: Evaluations of the part before the trial's own.
        switch_worker_step: Where the second protocol begins; 0 where it never does.
        guard: Says that the trial fails; None where nobody asks.
        look: Is given all evaluations after each.
        is_decided: Says that the trial is needed no longer.
        is_cancelled: It was stopped because nobody needs it any more.
        alarm: It was stopped because it fails; None where it was not.
    """

    trial: ReportedTrial
    reporter: Reporter
    heartbeat: Callable[[int, Evaluation | None], None]
    heartbeat_interval_seconds: float
    stop: StopRule | None = None
    inherited: Sequence[Evaluation] = ()
    switch_worker_step: int = 0
    guard: Guard | None = None
    look: Callable[[Sequence[Evaluation]], None] = lambda _: None
    is_decided: Callable[[], bool] = lambda: False
    is_cancelled: bool = False
    alarm: RunEvent | None = None

    def __post_init__(self) -> None:
        self._next_heartbeat_at = time.monotonic() + self.heartbeat_interval_seconds
        self._next_look_at = self._next_heartbeat_at
        self._evaluations = list(self.inherited)
        self._untold: Evaluation | None = None

    def on_progress(self, worker_step: int) -> None:
        """Sends a heartbeat at most once per interval."""
        now = time.monotonic()
        if now >= self._next_heartbeat_at:
            self._next_heartbeat_at = now + self.heartbeat_interval_seconds
            untold, self._untold = self._untold, None
            self.heartbeat(worker_step, untold)
        self.reporter.on_progress(self.trial, worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        """Ends the run where its accuracy is known, hopeless, failing, or wanted no more."""
        self._untold = evaluation
        self.reporter.on_evaluation(self.trial, evaluation)
        if self._is_wanted_no_more():
            self.is_cancelled = True
            return Verdict.STOP
        self._evaluations.append(evaluation)
        self.look(self._evaluations)
        return Verdict.STOP if self._is_known() or self._fails(evaluation) else Verdict.CONTINUE

    def _is_known(self) -> bool:
        return self.stop is not None and (
            self.stop.knows(self._evaluations, self.switch_worker_step)
            or self.stop.is_hopeless(self._evaluations)
        )

    def _fails(self, newest: Evaluation) -> bool:
        """Before its end alone: what it ends with is its result."""
        if self.guard is None or newest.worker_step >= self.trial.total_worker_steps:
            return False
        reason = self.guard.alarm(self._evaluations, self.switch_worker_step)
        if reason is None:
            return False
        is_told = self.alarm is not None  # the test that ends the run may alarm once more
        self.alarm = RunEvent("alarmed", newest.worker_step, newest.elapsed_seconds, reason)
        if not is_told:
            self.on_event(self.alarm)
        return True

    def _is_wanted_no_more(self) -> bool:
        """Looks as often as heartbeats are sent; a database that is busy is asked again later."""
        now = time.monotonic()
        if now < self._next_look_at:
            return False
        self._next_look_at = now + self.heartbeat_interval_seconds
        with contextlib.suppress(RetryableError):
            return self.is_decided()
        return False

    def on_event(self, event: RunEvent) -> None:
        """Passes it on."""
        self.reporter.on_event(self.trial, event)


_LOG = logging.getLogger(__name__)
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
        self._identity = identity
        self._told_threshold = known.threshold
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
        threshold = state.measured_strategy.threshold
        if threshold != self._told_threshold:
            self._told_threshold = threshold
            self.store.set_threshold(self.study.name, threshold)
            self._reporter.on_threshold(state.measured_strategy, self._identity)
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


@dataclass(frozen=True)
class _Trained:
    """What came of a trial."""

    record: TrialRecord
    is_cancelled: bool


@dataclass
class TrialRunner:
    """Runs the trials that this process claimed."""

    identity: WorkloadIdentity
    conditions: RunConditions
    strategy: Strategy
    study: SearchStudy
    store: TrialStore
    prefixes: Prefixes
    reporter: Reporter
    heartbeat_interval_seconds: float
    is_decided: Callable[[], bool]
    trainer_kind: str
    others: OtherPairs

    def __post_init__(self) -> None:
        self._owner = Owner.current()
        self._has_warned = False

    def run(self, claim: Claim, trainer: Trainer) -> None:
        """Runs one trial: begin, train, record, tell, in this order (see `Repairer`).

        Once it is recorded it is never given back: what cannot be told, the next repair tells.

        Raises:
                RetryableError: Infrastructure failed; the run is given back.
                UserError: The trainer refuses the workload.
        """
        trial = self._reported(claim)
        self.reporter.on_run(trial)
        try:
            trained = self._trained(claim, trial, trainer)
            record = trained.record
            _check(record)
            if trained.is_cancelled:
                self.store.cancel(self.study.name, claim.number, record, CANCELLED)
            else:
                plateau = self._plateau_accuracy(record, claim.state.measured_strategy)
                self.store.complete(self.study.name, claim.number, record, plateau)
        except BaseException as error:
            self._give_back(claim.number, error)
            if isinstance(error, RetryableError):
                self.reporter.on_failed(trial, str(error))
            raise
        if trained.is_cancelled:
            self.reporter.on_cancelled(trial, record)
            self.study.fail(claim.number)
            return
        self.reporter.on_finished(trial, record)
        self.study.note_result(claim.number, record.diverged, record.training_seconds)
        self.study.complete(claim.number, record.converged_accuracy)

    def _trained(self, claim: Claim, trial: ReportedTrial, trainer: Trainer) -> _Trained:
        """Begins, and trains unless the run is recorded already."""
        spec = self._spec(claim, Prefix())
        recorded = recorded_result(self.store, spec, self.trainer_kind)
        recorded = recorded or self.others.baseline(spec)
        if recorded is not None:
            self.store.begin(
                self.study.name,
                claim.number,
                spec,
                self._owner,
                speculative=claim.is_speculative,
            )
            return _Trained(recorded, is_cancelled=False)
        while True:
            prefix = self.prefixes.of(
                claim.number, claim.switch_percent, claim.replicate, claim.state.rows
            )
            spec = self._spec(claim, prefix)
            self.store.begin(
                self.study.name,
                claim.number,
                spec,
                self._owner,
                fork=prefix.fork,
                speculative=claim.is_speculative,
            )
            if not self.study.is_running(claim.number):
                raise RetryableError(f"trial {claim.number} was taken for stale before it began")
            try:
                # What else is measured would not be known to a search without company.
                observer = self._observer(trial, spec, prefix, claim.state)
                record = trainer.train(spec, observer)
                if observer.alarm is not None:
                    record = alarmed(record, observer.alarm)
            except UserError as error:
                if spec.fork_from is None:
                    raise
                # The run can be made without its checkpoint; a true fault shows again then.
                self.prefixes.distrust(spec.fork_from)
                self.reporter.on_failed(trial, str(error))
            else:
                is_whole = prefix.path is None or prefix.fork is not None
                record = record if is_whole else as_whole(record)
                return _Trained(record, observer.is_cancelled)

    def _spec(self, claim: Claim, prefix: Prefix) -> TrialSpec:
        spec = TrialSpec(
            self.identity,
            claim.switch_percent,
            claim.seed,
            claim.replicate,
            fork_from=prefix.path,
            checkpoint_percents=prefix.checkpoint_percents,
            checkpoint_directory=prefix.checkpoint_directory,
            conditions=self.conditions,
            inherited_evaluations=prefix.evaluations,
        )
        band = comparison_band(self.store, self.strategy, spec, self.trainer_kind)
        return replace(spec, band=band)

    def _observer(
        self, trial: ReportedTrial, spec: TrialSpec, prefix: Prefix, state: SearchState
    ) -> TrialObserver:
        """Watches a run of a search that was at this state when it was planned."""
        known, strategy = state.course.runs, state.measured_strategy

        def heartbeat(worker_step: int, evaluation: Evaluation | None) -> None:
            # A heartbeat that is lost does no harm, a run that is lost for it does.
            with contextlib.suppress(RetryableError):
                self.store.heartbeat(self.study.name, trial.number, worker_step)
                if evaluation is not None:
                    self.study.note_evaluation(trial.number, evaluation)

        stop = None
        if may_stop(strategy, spec.switch_percent, known):
            is_candidate = spec.switch_percent < strategy.highest_percent
            target = strategy.progress(known).target_accuracy
            # What measures the target is never hopeless.
            boundaries = self.identity.learning_rate_boundaries
            stop = StopRule.of(strategy, boundaries, target if is_candidate else None)
        return TrialObserver(
            trial,
            self.reporter,
            heartbeat,
            self.heartbeat_interval_seconds,
            stop=stop,
            inherited=prefix.evaluations,
            switch_worker_step=_planned_switch_worker_step(spec),
            guard=trial_guard(self.store, self.study.name, state, spec),
            look=self._look,
            is_decided=self.is_decided,
        )

    def _look(self, evaluations: Sequence[Evaluation]) -> None:
        """Warns once of a metric that never moves: runs may take hours."""
        word = None if self._has_warned else never_moved(self.identity, evaluations)
        if word is not None:
            self._has_warned = True
            _LOG.warning(word)

    def _plateau_accuracy(self, record: TrialRecord, strategy: Strategy) -> float | None:
        """What a run that was made to its end would have measured had it been stopped."""
        is_known = strategy.early_stop and strategy.threshold > 0
        if not is_known or record.stopped_early or record.diverged:
            return None
        stop = StopRule.of(strategy, self.identity.learning_rate_boundaries)
        evaluations = (*record.spec.inherited_evaluations, *record.evaluations)
        return stop.plateau_accuracy(evaluations, _planned_switch_worker_step(record.spec))

    def _reported(self, claim: Claim) -> ReportedTrial:
        return ReportedTrial(
            number=claim.number,
            switch_percent=claim.switch_percent,
            repeat=claim.replicate + 1,
            repeats=self.strategy.runs_at(claim.switch_percent),
            total_worker_steps=self.identity.total_worker_steps,
            first_protocol=self.identity.first_protocol,
            is_speculative=claim.is_speculative,
            metric=self.identity.decided_by,
        )

    def _give_back(self, number: int, error: BaseException) -> None:
        """Lets the run be made again; what cannot be written now, the next repair does."""
        self.study.stale.add(number)
        with contextlib.suppress(SyncSwitchError):
            row = self.store.get(self.study.name, number)
            if row is not None and row.state == TrialState.COMPLETE:
                return  # the interruption came after the result: the next repair tells it
            is_interrupt = isinstance(error, KeyboardInterrupt)
            reason = " ".join(str(error).split()) or type(error).__name__
            reason = INTERRUPTED if is_interrupt else reason
            self.store.fail(self.study.name, number, reason[:500])
            self.study.fail(number)


def _planned_switch_worker_step(spec: TrialSpec) -> int:
    """Where the second protocol begins; 0 where it never does."""
    switch = switch_worker_step(spec)
    return 0 if switch >= spec.identity.total_worker_steps else switch


def _check(record: TrialRecord) -> None:
    # Optuna turns a NaN into a failed trial, which would be run again for ever.
    metric = record.spec.identity.decided_by
    tested = [one.accuracy for one in record.evaluations]
    # One that diverged before its first test has none.
    measured = [] if record.diverged and not tested else [record.converged_accuracy]
    for accuracy in (*measured, *tested):
        if not metric.is_possible(accuracy):
            raise FatalError(
                f"the trainer reported {metric.name} {metric.value(accuracy):.6g}, which is not"
                f" {metric.range_text}; check the metric of the workload"
            )
