"""The study of a search: Optuna's, whose trials are its runs, and the trial store beside it.

Several searchers may share a study. To claim a run, a searcher asks Optuna for a trial, waits until
all trials with lower numbers have chosen their switch point and replicate, and then chooses its
own. Claims therefore happen one after the other, in the order of their numbers, without a lock.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import optuna
from optuna.distributions import FloatDistribution
from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from syncswitch.searcher.search.observations import (
    HEARTBEAT_SECONDS,
    REPLICATE,
    in_flight_runs,
    is_alive,
    is_run_by_anyone,
    observations_of,
)
from syncswitch.searcher.search.optuna_storage import open_storage, readable
from syncswitch.searcher.search.plan import SearchPlan, replicate_seed, study_name
from syncswitch.searcher.search.recorded import recorded_replicates
from syncswitch.searcher.search.sampler import BinarySearchSampler
from syncswitch.searcher.strategies.base import Decided, Strategy, Wait
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import PlannedTrial, SearchCourse, course_of, plan_trial
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.database.defaults import RESTART_SECONDS
from syncswitch.storage.database.engine import Database, known_error
from syncswitch.storage.database.inspection import shown
from syncswitch.storage.errors import DatabaseAwayError, DatabaseError, FatalError, RetryableError
from syncswitch.storage.records.job import RunConditions, ScheduledJob, SearchInfo
from syncswitch.storage.records.trial import Evaluation, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, StoredTrial, condition_values

PARAMETER = "switch_percent"
"""The parameter of Optuna's trials."""
PAIR = "protocols"
"""User attribute of Optuna's trials that holds both protocols."""
VALUE = "converged_accuracy"
_OWNER = "owner"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Patience:
    """Times and limits for waiting.

    A searcher on another machine that is silent for `heartbeat_seconds` counts as dead; a run
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
    number, say what was measured. Of a search over several pairs of protocols `pair` is the one
    that is looked at; runs with the first protocol alone count for all of them.
    """

    strategy: Strategy
    trials: Sequence[FrozenTrial]
    rows: Mapping[int, StoredTrial]
    pair: str | None = None

    @functools.cached_property
    def own_trials(self) -> list[FrozenTrial]:
        """Those of the pair, and those with the first protocol alone."""
        highest = self.strategy.highest_percent
        return [
            trial
            for trial in self.trials
            if self.pair in (None, trial.user_attrs.get(PAIR, self.pair))
            or trial.params.get(PARAMETER) == highest
        ]

    @functools.cached_property
    def own_rows(self) -> dict[int, StoredTrial]:
        """The stored rows of these."""
        numbers = (trial.number for trial in self.own_trials)
        return {number: self.rows[number] for number in numbers if number in self.rows}

    @functools.cached_property
    def finished(self) -> list[Observation]:
        """The runs that count: those that are complete for Optuna."""
        told = (one.number for one in self.own_trials if one.state == OptunaState.COMPLETE)
        return observations_of(self.rows[number] for number in told if number in self.rows)

    @functools.cached_property
    def course(self) -> SearchCourse:
        """The course of the search so far. Raises UserError if the baseline diverged."""
        return course_of(self.strategy, self.finished)

    @functools.cached_property
    def measured_strategy(self) -> Strategy:
        """The strategy with its threshold, once that is measured; raises as `course`."""
        return self.strategy.with_measured_threshold(self.course.runs)

    @functools.cached_property
    def plan(self) -> PlannedTrial | Wait | Decided:
        """The next step of the search. Raises UserError if the baseline diverged."""
        under_way = in_flight_runs(self.own_trials, PARAMETER)
        return plan_trial(self.strategy, self.finished, under_way)

    def is_all_before(self, number: int) -> bool:
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
    @functools.wraps(function)
    def call(study: SearchStudy, *args: Any, **kwargs: Any) -> _T:
        try:
            return function(study, *args, **kwargs)
        except UpdateFinishedTrialError as error:
            raise RetryableError(
                "another searcher considered this run stale", code="taken-over"
            ) from error
        except StorageInternalError as error:
            cause = " ".join(str(error.__cause__ or error).split())[:200]
            ours = known_error(error.__cause__, study.place)
            if isinstance(ours, FatalError):
                raise ours from error
            kind = DatabaseAwayError if isinstance(ours, DatabaseAwayError) else RetryableError
            raise kind(f"the database did not answer: {cause}") from error
        except (LookupError, ValueError) as error:
            if study.exists():
                raise
            raise DatabaseError(
                f"the study {study.name!r} was deleted in Optuna while it was searched; its runs"
                " are still recorded",
                remedy="give the same command again, which makes the study anew from them",
            ) from error

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
    def __init__(
        self, database: Database, name: str, strategy: Strategy, pair: str | None = None
    ) -> None:
        """Creates the study, or loads it if it exists.

        Raises DatabaseError if Optuna's tables are of another version.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.name = name
        self.place = shown(database.url)
        self.store = TrialStore(database)
        self.stale: set[int] = set()
        self.strategy, self.pair = strategy, pair
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

    def exists(self) -> bool:
        """Returns whether Optuna still has the study; True if the database does not answer."""
        try:
            self._storage.get_study_id_from_name(self.name)
        except KeyError:
            return False
        except StorageInternalError:
            pass
        return True

    def describe(self, attributes: Mapping[str, str | float]) -> None:
        """Sets user attributes of the study for Optuna's tools, unless the database is busy."""
        with contextlib.suppress(StorageInternalError, KeyError):  # `read` says what is wrong
            present = self._study.user_attrs
            for name, value in attributes.items():
                if present.get(name) != value:
                    self._study.set_user_attr(name, value)

    @_retryable
    def read(self) -> SearchState:
        """Returns the search as it is now; rows are read last, as an end is stored there first."""
        try:
            with readable(self._storage.url):
                trials = self._study.get_trials(deepcopy=False)
        except DatabaseError as error:
            # Of a study that is gone it says that a value cannot be read.
            raise error if error.__cause__ is None or self.exists() else error.__cause__ from error
        return SearchState(self.strategy, trials, self.store.numbered(self.name), self.pair)

    def repaired(self, patience: Patience) -> tuple[SearchState, int]:
        """Finishes trials that run for Optuna though nobody runs them; counts those that are stale.

        The trial store is always written before Optuna, so the two differ only in trials that still
        run for Optuna:

        - complete in the store: its value is told;
        - failed in the store: its failure is told;
        - running in the store, and its owner is dead: it is failed in both;
        - unknown to the store: it is failed, once its owner is dead or too long has passed.

        Where somebody deleted the study, the store has trials that Optuna lacks: they are added.

        Optuna's own `fail_stale_trials` would also fail the first kind, whose runs would then be
        made again.
        """
        state = self.read()
        if self._add_lost(state):
            state = self.read()
        running = [trial for trial in state.trials if trial.state == OptunaState.RUNNING]
        settled = [self._settle(trial, state.rows.get(trial.number), patience) for trial in running]
        return (self.read() if any(settled) else state), settled.count("stale")

    @_retryable
    def _add_lost(self, state: SearchState) -> bool:
        """Adds the trials that only the store has, as running ones; returns whether there are any.

        Optuna numbers trials in their order, and gives each number to one searcher alone.
        """
        number, lost = len(state.trials) - 1, max(state.rows, default=-1)
        is_any = number < lost
        while number < lost:
            trial_id = self._storage.create_new_trial(self._study_id)
            number = self._storage.get_trial(trial_id).number
            row = state.rows.get(number)
            if row is None:
                self.fail(number)
                continue
            strategy = self.strategy
            range_ = FloatDistribution(strategy.lowest_percent, strategy.highest_percent)
            self._storage.set_trial_param(trial_id, PARAMETER, row.switch_percent, range_)
            pair = f"{row.job.first_protocol},{row.job.second_protocol}"
            self._storage.set_trial_user_attr(trial_id, PAIR, pair)
            self._storage.set_trial_user_attr(trial_id, "seed", row.seed)
            self._storage.set_trial_user_attr(trial_id, REPLICATE, row.replicate)
        return is_any

    def _settle(
        self, trial: FrozenTrial, row: StoredTrial | None, patience: Patience
    ) -> Literal["told", "stale"] | None:
        accuracy = None if row is None else row.result.converged_accuracy
        if row is not None and row.state == TrialState.COMPLETE and accuracy is not None:
            self.note_result(trial.number, bool(row.result.diverged), row.times.training_seconds)
            self.complete(trial.number, accuracy)
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
        """Claims the planned run; None if others took all that are needed.

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
        strategy = self.strategy
        self._sampler.state = state
        if self.pair is not None:
            trial.set_user_attr(PAIR, self.pair)
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
        """Reports an evaluation of a run under way, for Optuna's tools and `status`."""
        # Another searcher took it for stale, or the study is gone: the end of the run will tell.
        with contextlib.suppress(UpdateFinishedTrialError, KeyError):
            self._storage.set_trial_intermediate_value(
                self._trial_id(number), evaluation.worker_step, evaluation.accuracy
            )

    def complete(self, number: int, accuracy: float) -> None:
        self._tell(number, float(accuracy), OptunaState.COMPLETE)

    def fail(self, number: int) -> None:
        self._tell(number, None, OptunaState.FAIL)

    @_retryable
    def _tell(self, number: int, value: float | None, state: OptunaState) -> None:
        """Tells Optuna of the end of a run, unless somebody has finished the trial."""
        with contextlib.suppress(UpdateFinishedTrialError):  # another searcher was faster
            self._study.tell(number, value, state=state, skip_if_finished=True)


def begin_study(
    database: Database,
    identity: ScheduledJob,
    plan: SearchPlan,
    reference: str | None = None,
    name: str | None = None,
) -> SearchStudy:
    """Registers a search, unless it is known, and opens its study.

    Of a search that was begun, the strategy stays what it was then. The reference is the normal
    form of the user's name for the workload; the name is that of the study where other pairs of
    protocols are searched in it, too.
    """
    store, name = TrialStore(database), name or study_name(identity, plan)
    wanted = plan.strategy.with_recorded(recorded_replicates(store, identity, plan))
    stored = store.register(
        identity,
        reference or identity.name,
        SearchInfo(
            study=name,
            fingerprint=identity.fingerprint,
            protocols=identity.protocols,
            strategy=wanted.name,
            halvings=wanted.halvings,
            runs=wanted.runs,
            threshold=wanted.threshold,
            target_accuracy=wanted.target_accuracy,
            trainer=plan.trainer,
            base_seed=plan.base_seed,
            options=wanted.options,
            pairs=list(plan.pairs),
        ),
    )
    study = SearchStudy(database, name, stored_strategy(stored), identity.pair)
    study.describe(_description(identity, plan.conditions, study.strategy))
    return study


def _description(
    identity: ScheduledJob, conditions: RunConditions, strategy: Strategy
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
