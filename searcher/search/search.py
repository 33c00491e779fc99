"""A search: makes runs until its strategy has the answer, and publishes that as a policy.

Its study is one of Optuna's; the trial store holds what the runs measured. Several searchers may
share a study. To claim a run, a searcher asks Optuna for a trial, waits until all trials with lower
numbers have chosen their switch point and replicate, and then chooses its own. Claims therefore
happen one after the other, in the order of their numbers, without a lock.

Nothing that matters is kept in memory: whatever happens to a searcher, the next one goes on from
the database.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import socket
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from syncswitch.searcher.search.checkpoints import DEFAULT_FOLDER, Prefixes, as_whole
from syncswitch.searcher.search.observations import (
    HEARTBEAT_SECONDS,
    REPLICATE,
    in_flight_runs,
    is_alive,
    is_run_by_anyone,
    observations_of,
    total_cost,
)
from syncswitch.searcher.search.optuna_storage import open_storage, readable
from syncswitch.searcher.search.plan import SearchPlan, replicate_seed, study_name
from syncswitch.searcher.search.recorded import (
    baseline_of_pairs,
    comparison_band,
    completed_runs,
    measured_band,
    recorded_replicates,
    recorded_result,
    sound_baseline,
)
from syncswitch.searcher.search.reporter import ReportedTrial, Reporter
from syncswitch.searcher.search.sampler import BinarySearchSampler
from syncswitch.searcher.speed_up import speed_ups
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import (
    Decided,
    Strategy,
    SwitchPointSummary,
    Wait,
    is_guarded,
)
from syncswitch.searcher.strategies.early_stopping import StopRule, may_stop
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import PlannedTrial, SearchCourse, course_of, plan_trial
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.database.defaults import RESTART_SECONDS
from syncswitch.storage.database.engine import Database, known_error
from syncswitch.storage.database.inspection import shown
from syncswitch.storage.errors import (
    DatabaseAwayError,
    FatalError,
    RetryableError,
    SyncSwitchError,
    UserError,
)
from syncswitch.storage.metrics import mean_of
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.queries.search_costs import SearchCost
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.job import RunConditions, SearchInfo, WorkloadIdentity
from syncswitch.storage.records.policy import Evidence, Measured, TimingPolicy
from syncswitch.storage.records.trial import (
    Evaluation,
    RunEvent,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import (
    CANCELLED,
    INTERRUPTED,
    Fork,
    Owner,
    StoredTrial,
    condition_values,
)
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.replay import RecordedRun
from syncswitch.trainers.run.guard import Guard
from syncswitch.trainers.run.tensorboard import logged
from syncswitch.trainers.trainer import Observer, Trainer, Verdict

if TYPE_CHECKING:
    from typing_extensions import Unpack

PARAMETER = "switch_percent"
"""The parameter of Optuna's trials."""

VALUE = "converged_accuracy"
_OWNER = "owner"
_LEAST_TESTS = 5
_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Patience:
    """Times and limits for waiting.

    A searcher on another machine that is silent for `heartbeat_seconds` counts as dead; a trial
    without an owner that is not begun for `stale_seconds` is given up. So are searches after so
    many `attempts` in a row, or without the database for `restart_seconds`.
    """

    heartbeat_seconds: float = HEARTBEAT_SECONDS
    stale_seconds: float = 15.0
    heartbeat_interval_seconds: float = 1.0
    poll_seconds: float = 0.5
    retry_seconds: float = 2.0
    attempts: int = 3
    restart_seconds: float = RESTART_SECONDS


@dataclass(frozen=True)
class SearchState:
    """A search at one moment; what follows from it is computed once.

    Optuna's `trials` say what runs and what counts, and must not be changed; the stored `rows`, by
    number, say what was measured.
    """

    strategy: Strategy
    trials: Sequence[FrozenTrial]
    rows: Mapping[int, StoredTrial]

    @cached_property
    def finished(self) -> list[Observation]:
        """The runs that count: those that are complete for Optuna."""
        told = (trial.number for trial in self.trials if trial.state == OptunaState.COMPLETE)
        return observations_of(self.rows[number] for number in told if number in self.rows)

    @cached_property
    def course(self) -> SearchCourse:
        """The course of the search so far. Raises UserError if the baseline diverged."""
        return course_of(self.strategy, self.finished)

    @cached_property
    def measured_strategy(self) -> Strategy:
        """The strategy with its threshold, once that is measured; raises as `course`."""
        return self.strategy.with_measured_threshold(self.course.runs)

    @cached_property
    def plan(self) -> PlannedTrial | Wait | Decided:
        """The next step of the search. Raises UserError if the baseline diverged."""
        return plan_trial(self.strategy, self.finished, in_flight_runs(self.trials, PARAMETER))

    def is_all_before(self, number: int) -> bool:
        """Returns whether all trials with lower numbers are known here and have chosen."""
        return len(self.trials) == number and not self.is_choosing_before(number)

    def is_choosing_before(self, number: int) -> bool:
        """Returns whether a trial with a lower number has no switch point or no replicate yet.

        Both are checked although the replicate is written last: Optuna reads them one after the
        other, so it may see the replicate of a trial whose switch point it has just missed.
        """
        return any(
            trial.state == OptunaState.RUNNING
            and (PARAMETER not in trial.params or REPLICATE not in trial.user_attrs)
            for trial in self.trials
            if trial.number < number
        )


@dataclass(frozen=True)
class Claim:
    """A run that this process has claimed and has to make.

    `replicate` counts from 0; `state` is the search as it was when this run was planned. A
    speculative run is only likely to be needed.
    """

    number: int
    switch_percent: float
    replicate: int
    seed: int
    state: SearchState
    is_speculative: bool = False


def _retryable(function: Callable[..., _T]) -> Callable[..., _T]:
    """Raises RetryableError or DatabaseAwayError if the database is busy or lost."""

    @functools.wraps(function)
    def call(study: SearchStudy, *args: Any, **kwargs: Any) -> _T:
        try:
            return function(study, *args, **kwargs)
        except UpdateFinishedTrialError as error:
            raise RetryableError("another searcher took this run for stale") from error
        except StorageInternalError as error:
            cause = " ".join(str(error.__cause__ or error).split())[:200]
            known = known_error(error.__cause__, study.place)
            if isinstance(known, FatalError):
                raise known from error
            kind = DatabaseAwayError if isinstance(known, DatabaseAwayError) else RetryableError
            raise kind(f"the database did not answer: {cause}") from error

    return call


class _SearchSampler(BinarySearchSampler):
    """The sampler of a search, which knows more than Optuna's trials hold: costs and alarms.

    It goes by the `state` that the claiming process read last: read again while sampling, the
    search might show other runs than those that the claim is based on.
    """

    state: SearchState

    def _next_percent(self, study: optuna.Study, trial: FrozenTrial, strategy: Strategy) -> float:
        return self.state.plan.switch_percent

    def _tell_given_up(self, percent: float) -> None:
        """Says nothing: whoever searches says why runs fail, and does not go on as if they had."""


class SearchStudy:
    """An Optuna study whose trials are the runs of one search, and the trial store beside it.

    `stale` are trials that this process gave up, perhaps without being able to write that down.
    """

    @_retryable
    def __init__(self, database: Database, name: str, strategy: Strategy) -> None:
        """Creates the study, or loads it if it exists.

        Raises DatabaseError if Optuna's tables are of another version.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.name = name
        self.place = shown(database.url)
        self.store = TrialStore(database)
        self.stale: set[int] = set()
        self._strategy = strategy
        self._storage = open_storage(database.url)
        self._sampler = _SearchSampler(strategy, parameter=PARAMETER)
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=name,
            direction="maximize",
            sampler=self._sampler,
            load_if_exists=True,
        )
        self._study_id = self._storage.get_study_id_from_name(name)
        self._first_seen: dict[int, float] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            if self._study.metric_names != [VALUE]:
                self._study.set_metric_names([VALUE])

    def describe(self, attributes: Mapping[str, str | float]) -> None:
        """Sets user attributes of the study for Optuna's tools, unless the database is busy."""
        with contextlib.suppress(StorageInternalError):
            known = self._study.user_attrs
            for name, value in attributes.items():
                if known.get(name) != value:
                    self._study.set_user_attr(name, value)

    @_retryable
    def read(self) -> SearchState:
        """Returns the search as it is now; rows are read last, as an end is stored there first."""
        with readable(self._storage.url):
            trials = self._study.get_trials(deepcopy=False)
        return SearchState(self._strategy, trials, self.store.numbered(self.name))

    def repaired(self, patience: Patience) -> tuple[SearchState, int]:
        """Finishes the trials that are running for Optuna although nobody runs them.

        The trial store is always written before Optuna, so the two differ only in trials that still
        run for Optuna:

        - complete in the store: its value is told;
        - failed in the store: its failure is told;
        - running in the store, and its owner is dead: it is failed in both;
        - unknown to the store: it is failed, once its owner is dead or too long has passed.

        Optuna's own `fail_stale_trials` would also fail the first kind, whose runs would then be
        made again.

        Returns:
            The search after that, and how many trials were stale.
        """
        state = self.read()
        running = [trial for trial in state.trials if trial.state == OptunaState.RUNNING]
        settled = [self._settle(trial, state.rows.get(trial.number), patience) for trial in running]
        return (self.read() if any(settled) else state), settled.count("stale")

    def _settle(
        self, trial: FrozenTrial, row: StoredTrial | None, patience: Patience
    ) -> Literal["told", "stale"] | None:
        if (
            row is not None
            and row.state == TrialState.COMPLETE
            and row.converged_accuracy is not None
        ):
            self.note_result(trial.number, bool(row.diverged), row.training_seconds)
            self.complete(trial.number, row.converged_accuracy)
            return "told"
        is_stale = self._is_stale(trial, row, patience)
        if not is_stale or self.store.get(self.name, trial.number) != row:
            return None  # it ended meanwhile, and the next look decides
        # The store first: were this process killed in between, the next repair sees it.
        self.store.fail(self.name, trial.number, "its process ended")
        self.fail(trial.number)
        return "stale"

    def _is_stale(self, trial: FrozenTrial, row: StoredTrial | None, patience: Patience) -> bool:
        if trial.number in self.stale:
            return True
        if row is not None:
            is_failed = row.state == TrialState.FAILED
            return is_failed or not is_run_by_anyone(row, patience.heartbeat_seconds)
        # Nobody has begun it since it was asked for.
        content = trial.user_attrs.get(_OWNER)
        owner = Owner(**content) if isinstance(content, dict) else None
        if owner is not None and owner.host == socket.gethostname():
            return not is_alive(owner)
        now = time.monotonic()
        return now - self._first_seen.setdefault(trial.number, now) > patience.stale_seconds

    @_retryable
    def claim(
        self, state: SearchState, owner: Owner, base_seed: int, look: Callable[[], SearchState]
    ) -> Claim | None:
        """Claims the planned run; returns None if others took all that are needed.

        `look` reads the search again and gives up dead trials. It is called until those who claimed
        trials in the meantime have chosen.
        """
        trial = self._study.ask()
        try:
            trial.set_user_attr(_OWNER, asdict(owner))
            if not state.is_all_before(trial.number):
                while (state := look()).is_choosing_before(trial.number):
                    pass
            if isinstance(state.plan, PlannedTrial):
                return self._choose(trial, state.plan, state, base_seed)
            self.fail(trial.number)
        except BaseException:
            self.stale.add(trial.number)
            self.fail(trial.number)
            raise
        return None

    def _choose(
        self, trial: optuna.Trial, planned: PlannedTrial, state: SearchState, base_seed: int
    ) -> Claim | None:
        """Lets the sampler suggest the switch point; returns None if a user enqueued another."""
        strategy = self._strategy
        self._sampler.state = state
        percent = trial.suggest_float(PARAMETER, strategy.lowest_percent, strategy.highest_percent)
        if percent != planned.switch_percent:
            self.fail(trial.number)
            return None
        seed = replicate_seed(base_seed, planned.replicate)
        trial.set_user_attr("seed", seed)
        if planned.is_speculative:
            trial.set_user_attr("speculative", True)
        # Written last: it tells the searchers that wait for this one to go on.
        trial.set_user_attr(REPLICATE, planned.replicate)
        return Claim(trial.number, percent, planned.replicate, seed, state, planned.is_speculative)

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)

    @_retryable
    def is_running(self, number: int) -> bool:
        """Returns whether nobody has finished this trial."""
        return self._storage.get_trial(self._trial_id(number)).state == OptunaState.RUNNING

    @_retryable
    def note_result(self, number: int, diverged: bool, training_seconds: float | None) -> None:
        """Writes what else a run measured, before its accuracy ends the trial."""
        trial_id = self._trial_id(number)
        with contextlib.suppress(UpdateFinishedTrialError):  # another searcher was faster
            self._storage.set_trial_user_attr(trial_id, "training_seconds", training_seconds)
            self._storage.set_trial_user_attr(trial_id, "diverged", diverged)

    @_retryable
    def note_evaluation(self, number: int, evaluation: Evaluation) -> None:
        """Reports a test of a run under way, for Optuna's tools and `status`."""
        with contextlib.suppress(UpdateFinishedTrialError):  # another searcher took it for stale
            self._storage.set_trial_intermediate_value(
                self._trial_id(number), evaluation.worker_step, evaluation.accuracy
            )

    def complete(self, number: int, accuracy: float) -> None:
        """Tells Optuna the accuracy, unless somebody has finished the trial."""
        self._tell(number, float(accuracy), OptunaState.COMPLETE)

    def fail(self, number: int) -> None:
        """Tells Optuna that the run failed, unless somebody has finished the trial."""
        self._tell(number, None, OptunaState.FAIL)

    @_retryable
    def _tell(self, number: int, value: float | None, state: OptunaState) -> None:
        with contextlib.suppress(UpdateFinishedTrialError):  # another searcher was faster
            self._study.tell(number, value, state=state, skip_if_finished=True)


class TrialObserver(Observer):
    """Sends the heartbeats of a run, and decides when it ends early.

    It goes by the search as it was when the run was planned: a search without company would not
    know what else has been measured since. A run that is no longer needed `is_cancelled`, and
    `alarm` is why a guard ended one.
    """

    def __init__(
        self, loop: TrialLoop[Any], trial: ReportedTrial, spec: TrialSpec, state: SearchState
    ) -> None:
        self.is_cancelled = False
        self.alarm: RunEvent | None = None
        self._loop, self._trial, self._spec, self._state = loop, trial, spec, state
        self._interval_seconds = loop.patience.heartbeat_interval_seconds
        self._next_heartbeat_at = self._next_look_at = time.monotonic() + self._interval_seconds
        self._evaluations = list(spec.inherited_evaluations)
        self._untold: Evaluation | None = None
        self._switch_worker_step = _planned_switch_worker_step(spec)
        self._stop: StopRule | None = None
        if may_stop(state.measured_strategy, spec.switch_percent, state.course.runs):
            boundaries = spec.identity.learning_rate_boundaries
            self._stop = StopRule.of(state.measured_strategy, boundaries)
        self._guard = self._guard_of_candidate()

    def _guard_of_candidate(self) -> Guard | None:
        """The guard that ends a run as soon as its switch fails.

        None if the search wants to know how much a failing run loses, if runs are made to their
        end, and as long as the accuracy of the first protocol is unknown.
        """
        strategy, known, spec = self._state.measured_strategy, self._state.course.runs, self._spec
        is_candidate = spec.switch_percent < strategy.highest_percent
        is_wanted = is_candidate and strategy.early_stop and strategy.judges_single_runs
        if not is_wanted or not spec.conditions.is_undisturbed:
            return None
        baseline = sound_baseline(known, strategy.highest_percent)
        target = strategy.progress(known).target_accuracy if baseline else None
        if target is None:
            return None
        runs = self._loop.completed(self._state)
        curves = (runs[number].evaluations for number in baseline if number in runs)
        band = measured_band(target, strategy.threshold, curves)
        return Guard(band, spec.identity.total_worker_steps, spec.identity.decided_by)

    def on_progress(self, worker_step: int) -> None:
        """Sends a heartbeat at most once per interval, with the last test if it was not told."""
        now = time.monotonic()
        if now >= self._next_heartbeat_at:
            self._next_heartbeat_at = now + self._interval_seconds
            untold, self._untold = self._untold, None
            # A lost heartbeat does no harm, but losing the run for it would.
            with contextlib.suppress(RetryableError):
                study, number = self._loop.study, self._trial.number
                study.store.heartbeat(study.name, number, worker_step)
                if untold is not None:
                    study.note_evaluation(number, untold)
        self._loop.reporter.on_progress(self._trial, worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        """Ends the run if its accuracy is known, if it fails, or is not needed."""
        self._untold = evaluation
        self._loop.reporter.on_evaluation(self._trial, evaluation)
        if self._is_needless():
            self.is_cancelled = True
            return Verdict.STOP
        self._evaluations.append(evaluation)
        self._loop.warn_once(never_moved(self._spec.identity, self._evaluations))
        is_known = self._stop is not None and self._stop.knows(
            self._evaluations, self._switch_worker_step
        )
        return Verdict.STOP if is_known or self._fails(evaluation) else Verdict.CONTINUE

    def _fails(self, newest: Evaluation) -> bool:
        """Asks the guard, except at the end of the run, whose last test is its result."""
        if self._guard is None or newest.worker_step >= self._spec.identity.total_worker_steps:
            return False
        reason = self._guard.alarm(self._evaluations, self._switch_worker_step)
        if reason is None:
            return False
        is_told = self.alarm is not None  # the test that ends the run may alarm again
        self.alarm = RunEvent("alarmed", newest.worker_step, newest.elapsed_seconds, reason)
        if not is_told:
            self.on_event(self.alarm)
        return True

    def _is_needless(self) -> bool:
        """Looks as often as heartbeats are sent; a busy database is asked again later."""
        now = time.monotonic()
        if now < self._next_look_at:
            return False
        self._next_look_at = now + self._interval_seconds
        with contextlib.suppress(RetryableError):
            return self._loop.is_decided()
        return False

    def on_event(self, event: RunEvent) -> None:
        """Passes the event on."""
        self._loop.reporter.on_event(self._trial, event)

    def judged(self, record: TrialRecord) -> TrialRecord:
        """The record of the run, with the alarm that ended it.

        Nothing is lost by an alarm: whatever was trained is the price of the run.
        """
        alarm = self.alarm
        if alarm is None:
            return record
        accuracy = record.evaluations[-1].accuracy if record.evaluations else None
        percent, at_step = record.spec.switch_percent, alarm.worker_step
        failed = FailedSwitch(
            percent,
            alarm.reason,
            at_step,
            alarm.elapsed_seconds,
            lost_seconds=0.0,
            accuracy=accuracy,
        )
        return replace(record, guard=GuardOutcome(None, (failed,)), events=(*record.events, alarm))


def never_moved(identity: WorkloadIdentity, evaluations: Sequence[Evaluation]) -> str | None:
    """A warning if the metric was the same in all tests of the first half of a run.

    Only the first test in the second half warns, while it is the newest.
    """
    half = identity.total_worker_steps / 2
    is_now = len(evaluations) >= _LEAST_TESTS and evaluations[-1].worker_step >= half
    if not is_now or evaluations[-2].worker_step >= half:
        return None
    if len({one.accuracy for one in evaluations}) > 1:
        return None
    metric = identity.decided_by
    return (
        f"{metric.name} was {metric.text(evaluations[-1].accuracy)} in all {len(evaluations)} tests"
        " of half a run, so switch points cannot be compared: check the metric, the labels and the"
        " learning rate"
    )


class LoopOptions(TypedDict, total=False):
    """Options for making runs, whatever they are for.

    `reference` is the normal form of the user's name for the workload. `other_pairs` are searches
    of the same job with other second protocols; their runs of the first protocol alone count here,
    too.
    """

    reference: str | None
    reporter: Reporter | None
    patience: Patience | None
    checkpoints: Path
    tensorboard: Path | None
    other_pairs: Sequence[str]


class TrialLoop(ABC, Generic[_Answer]):
    """Makes the runs of a study, one after the other, until `move` returns an answer.

    `strategy` is the one that the study was first registered with; it never changes.
    """

    def __init__(
        self,
        database: Database,
        identity: WorkloadIdentity,
        plan: SearchPlan,
        open_trainer: Callable[[], Trainer],
        **options: Unpack[LoopOptions],
    ) -> None:
        """Opens the study.

        `open_trainer` is called when the first run is needed, and again after a failure. Raises
        UserError if the plan is out of range, or the database cannot be used.
        """
        plan.check()
        self._database, self._identity, self._plan = database, identity, plan
        self._open_trainer, self._tensorboard = open_trainer, options.get("tensorboard")
        self.reporter = options.get("reporter") or Reporter()
        self.patience = options.get("patience") or Patience()
        self._owner = Owner.current()
        self.store = TrialStore(database)
        self.study_name = study_name(identity, plan)
        reference = options.get("reference") or identity.name
        wanted = plan.strategy
        if isinstance(wanted, AdaptiveStrategy):
            # Counts only if this search is new; one that was begun keeps what it was begun with.
            recorded = recorded_replicates(self.store, identity, plan)
            wanted = replace(wanted, recorded=recorded)
        known = self.store.register(
            identity,
            reference,
            SearchInfo(
                study=self.study_name,
                fingerprint=identity.fingerprint,
                strategy=wanted.name,
                settings=wanted.settings,
                runs=wanted.runs,
                threshold=wanted.threshold,
                target_accuracy=wanted.target_accuracy,
                trainer=plan.trainer,
                base_seed=plan.base_seed,
                options=wanted.options,
                pairs=list(plan.pairs),
            ),
        )
        self.strategy = stored_strategy(known)
        self._told_threshold = known.threshold
        self.study = SearchStudy(database, self.study_name, self.strategy)
        self.study.describe(_description(identity, plan.conditions, self.strategy))
        self._other_pairs = options.get("other_pairs", ())
        # Studies of two databases may have the same name.
        place = hashlib.sha256(database.url.encode()).hexdigest()[:8]
        self.prefixes = Prefixes(
            self.store,
            self.study_name,
            self.strategy,
            options.get("checkpoints", DEFAULT_FOLDER) / place,
            # What disturbs a run before a checkpoint would go on after it.
            may_share=plan.conditions.is_undisturbed,
            other_pairs=self._other_pairs,
        )
        self._trainer: Trainer | None = None
        self._failures_in_a_row = 0
        self._away_since: float | None = None
        self._has_warned = False

    @abstractmethod
    def move(self, state: SearchState) -> PlannedTrial | Wait | _Answer:
        """Returns the next run, that others have to be waited for, or the answer."""

    def is_decided(self) -> bool:
        """Returns whether the runs under way are no longer needed."""
        return False

    def run(self) -> _Answer:
        """Makes the runs that are missing, and returns the answer.

        `KeyboardInterrupt` gives the current run back and is raised again.

        Raises:
            UserError: The baseline diverged, or the trainer refuses the workload.
            RetryableError: Too many runs in a row failed, or the database stays away.
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
        """Tells the reporter how far the search is."""
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
                f"gave up after {gave_up} (the runs made so far are kept, and the same command goes"
                f" on from them): {error}"
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

        Raises:
            RetryableError: Infrastructure failed; the run is given back.
            UserError: The trainer refuses the workload.
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
            _check(record)
            if is_cancelled:
                self.store.cancel(self.study_name, claim.number, record, CANCELLED)
            else:
                plateau = self._plateau_accuracy(record, claim.state.measured_strategy)
                self.store.complete(self.study_name, claim.number, record, plateau)
        except BaseException as error:
            self._give_back(claim.number, error)
            if isinstance(error, RetryableError):
                self.reporter.on_failed(trial, str(error))
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
        """Begins the run, and trains it unless it is recorded already.

        Returns:
            Its record, and whether it was cancelled.
        """
        wanted = TrialSpec(
            self._identity,
            claim.switch_percent,
            claim.seed,
            claim.replicate,
            conditions=self._plan.conditions,
        )
        band = comparison_band(self.store, self.strategy, wanted, self._plan.trainer)
        wanted = replace(wanted, band=band)
        recorded = recorded_result(self.store, wanted, self._plan.trainer)
        recorded = recorded or baseline_of_pairs(self.store, self._other_pairs, wanted)
        if recorded is not None:
            self._begin(claim, wanted, None)
            return recorded, False
        while True:
            spec, fork = self.prefixes.begun(wanted, claim.number)
            self._begin(claim, spec, fork)
            if not self.study.is_running(claim.number):
                raise RetryableError(f"trial {claim.number} was taken for stale before it began")
            try:
                observer = TrialObserver(self, trial, spec, claim.state)
                record = observer.judged(trainer.train(spec, observer))
            except UserError as error:
                if spec.fork_from is None:
                    raise
                # The run can be made without its checkpoint; a true fault shows again then.
                self.prefixes.distrust(spec.fork_from)
                self.reporter.on_failed(trial, str(error))
            else:
                is_whole = spec.fork_from is None or fork is not None
                return record if is_whole else as_whole(record), observer.is_cancelled

    def _begin(self, claim: Claim, spec: TrialSpec, fork: Fork | None) -> None:
        self.store.begin(
            self.study_name,
            claim.number,
            spec,
            self._owner,
            fork=fork,
            speculative=claim.is_speculative,
        )

    def completed(self, state: SearchState) -> dict[int, RecordedRun]:
        """The complete runs of the search, by trial number."""
        return completed_runs(self.store, self.study_name, state.rows.values())

    def warn_once(self, word: str | None) -> None:
        """Warns early of a search that makes no sense, as runs may take hours."""
        if word is not None and not self._has_warned:
            self._has_warned = True
            _LOG.warning(word)

    def _plateau_accuracy(self, record: TrialRecord, strategy: Strategy) -> float | None:
        """Returns the accuracy that a run made to its end would have had if it were stopped."""
        is_known = strategy.early_stop and strategy.threshold > 0
        if not is_known or record.stopped_early or record.diverged:
            return None
        stop = StopRule.of(strategy, self._identity.learning_rate_boundaries)
        evaluations = (*record.spec.inherited_evaluations, *record.evaluations)
        return stop.plateau_accuracy(evaluations, _planned_switch_worker_step(record.spec))

    def _give_back(self, number: int, error: BaseException) -> None:
        """Lets the run be made again; if this cannot be written now, the next repair does it."""
        self.study.stale.add(number)
        with contextlib.suppress(SyncSwitchError):
            row = self.store.get(self.study_name, number)
            if row is not None and row.state == TrialState.COMPLETE:
                return  # interrupted after the result was stored: the next repair tells it
            is_interrupt = isinstance(error, KeyboardInterrupt)
            reason = " ".join(str(error).split()) or type(error).__name__
            reason = INTERRUPTED if is_interrupt else reason
            self.store.fail(self.study_name, number, reason[:500])
            self.study.fail(number)


def _description(
    identity: WorkloadIdentity, conditions: RunConditions, strategy: Strategy
) -> dict[str, str | int]:
    """Returns what Optuna's tools show of a search: the job, and conditions that are not usual."""
    usual = condition_values(RunConditions())
    shown = {**condition_values(conditions), "simulated_cluster": identity.simulated_cluster}
    return {
        **{name: text for name, text in shown.items() if text not in (None, usual.get(name))},
        "workload": identity.name,
        "workers": identity.workers,
        "protocols": identity.pair,
        "strategy": strategy.name,
    }


def _planned_switch_worker_step(spec: TrialSpec) -> int:
    """Returns the worker-step at which the second protocol begins; 0 if it never does."""
    switch = switch_worker_step(spec)
    return 0 if switch >= spec.identity.total_worker_steps else switch


def _check(record: TrialRecord) -> None:
    # Optuna turns a NaN into a failed trial, which would be made again for ever.
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


@dataclass(frozen=True, slots=True)
class SwitchPointResult:
    """One row of a search's closing table; times are means over runs that did not diverge."""

    summary: SwitchPointSummary
    training_seconds: float | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search."""

    policy: TimingPolicy
    switch_points: tuple[SwitchPointResult, ...]
    cost: SearchCost


class Search(TrialLoop[SearchResult]):
    """Finds the timing policy of one workload.

    Two searches with the same plan and job on the same database are one: the second goes on where
    the first was, shares its work, or answers at once.
    """

    def is_decided(self) -> bool:
        """Returns whether the search has published its policy."""
        return self._published() is not None

    def move(self, state: SearchState) -> SearchResult | PlannedTrial | Wait:
        """Returns the result of the search once it is decided; else what the strategy wants."""
        published = self._published()
        if published is not None:
            # Others may have made runs between the look and the policy.
            state = self.study.read()
            # Even a baseline run that diverged since then does not take the answer away.
            with contextlib.suppress(UserError):
                self.report(state)
            return self._end(published, state)
        self.report(state)
        match state.plan:
            case Decided() as decided:
                # A second call for the same study returns the same version.
                return self._end(
                    PolicyRegistry(self._database).publish(self._draft(decided, state)), state
                )
            case planned:
                return planned

    def _published(self) -> TimingPolicy | None:
        registry = PolicyRegistry(self._database)
        return registry.published(self._identity.fingerprint, self.study_name)

    def _end(self, policy: TimingPolicy, state: SearchState) -> SearchResult:
        """Deletes the checkpoints, and returns what the search found and cost."""
        assert policy.target_accuracy is not None  # a search measures it first
        self.store.set_target(self.study_name, policy.target_accuracy)
        self.prefixes.remove()
        self.study.describe({"policy_switch_percent": policy.switch_percent})
        switch_points: tuple[SwitchPointResult, ...] = ()
        # A baseline run that diverged after the decision changes nothing: the answer stands.
        with contextlib.suppress(UserError):
            summaries = self.strategy.progress(state.course.runs).summaries
            switch_points = tuple(
                SwitchPointResult(one, _mean_seconds(one.switch_percent, state))
                for one in summaries
            )
        cost = total_cost(self._identity, state.rows.values())
        return SearchResult(policy, switch_points, cost)

    def _draft(self, decided: Decided, state: SearchState) -> TimingPolicy:
        """Returns the policy to publish; the registry gives it its version."""
        strategy, identity, runs = state.measured_strategy, self._identity, state.course.runs
        percent, highest = decided.switch_percent, strategy.highest_percent
        accuracies = {
            one.switch_percent: one.mean_accuracy for one in strategy.progress(runs).summaries
        }
        sound = [run for run in runs if not run.diverged]
        timed = [(run.switch_percent, state.rows[run.trial_number]) for run in sound]
        speed_up = speed_ups(identity, timed, highest).get(percent)
        completed = self.completed(state)
        baseline = sound_baseline(runs, highest)
        return TimingPolicy(
            job=identity.key,
            switch_percent=percent,
            target_accuracy=decided.target_accuracy,
            promise=decided.promise,
            version=1,
            threshold=strategy.threshold,
            measured=Measured(
                mean_accuracy=accuracies.get(percent),
                training_seconds=_mean_seconds(percent, state),
                baseline_seconds=_mean_seconds(highest, state),
                speed_up_low=speed_up.low if speed_up else None,
                speed_up_high=speed_up.high if speed_up else None,
            ),
            strategy=strategy.name,
            study=self.study_name,
            evidence=tuple(
                Evidence(
                    study=self.study_name,
                    trial_number=run.trial_number,
                    switch_percent=run.switch_percent,
                    replicate=run.replicate,
                    converged_accuracy=run.accuracy,
                    diverged=run.diverged,
                    training_seconds=state.rows[run.trial_number].training_seconds or 0.0,
                )
                for run in sorted(runs, key=lambda run: run.trial_number)
            ),
            created_at=datetime.now(timezone.utc).isoformat(),
            software=software_versions(),
            guarded=is_guarded(strategy),
            keep=None if is_guarded(strategy) else getattr(strategy, "keep", None),
            threshold_runs=strategy.threshold_runs,
            band=None
            if decided.target_accuracy is None
            else measured_band(
                decided.target_accuracy,
                strategy.threshold,
                (completed[n].evaluations for n in baseline if n in completed),
            ),
        )


def _mean_seconds(percent: float, state: SearchState) -> float | None:
    """Returns the mean time of whole trainings at a switch point; None if none is known."""
    return mean_of(
        state.rows[run.trial_number].whole_run_seconds
        for run in state.course.runs
        if run.switch_percent == percent and not run.diverged
    )
