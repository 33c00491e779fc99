"""A search as an Optuna study: ask for a trial, let the sampler suggest it, tell its accuracy.

Several searchers may share a study. Each claims a run in three moves: it asks for a trial, waits
until all trials with lower numbers have chosen their switch point and replicate, then chooses its
own. So claims happen one after the other, in the order of their numbers, without any lock.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypeVar

import optuna
from optuna.exceptions import (
    ExperimentalWarning,
    StorageInternalError,
    UpdateFinishedTrialError,
)
from optuna.trial import FrozenTrial, TrialState

from syncswitch.searcher.search.observations import REPLICATE, in_flight_runs, observations_of
from syncswitch.searcher.search.optuna_storage import open_storage, readable
from syncswitch.searcher.search.plan import replicate_seed
from syncswitch.searcher.search.sampler import BinarySearchSampler
from syncswitch.searcher.strategies.base import Decided, Strategy, Wait
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import PlannedTrial, SearchCourse, course_of, plan_trial
from syncswitch.storage.database.driver_errors import is_away
from syncswitch.storage.errors import DatabaseAwayError, RetryableError
from syncswitch.storage.records.trial import Evaluation
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, StoredTrial

PARAMETER = "switch_percent"
"""Of Optuna's trials."""
VALUE = "converged_accuracy"
_OWNER = "owner"
_T = TypeVar("_T")


@dataclass(frozen=True)
class SearchState:
    """A search at one moment, by both accounts; what follows from them is computed once.

    Attributes:
        trials: Optuna's, which say what runs and what counts; not to be changed.
        rows: Ours by number, which say what was measured.
        speculate: Whether trials may be made that are only likely to be needed.
    """

    strategy: Strategy
    trials: Sequence[FrozenTrial]
    rows: Mapping[int, StoredTrial]
    speculate: bool = True

    @cached_property
    def finished(self) -> list[Observation]:
        """The trials that count: those that Optuna has as complete."""
        told = (trial.number for trial in self.trials if trial.state == TrialState.COMPLETE)
        return observations_of(self.rows[number] for number in told if number in self.rows)

    @cached_property
    def course(self) -> SearchCourse:
        """The progress of the search. Raises UserError where the baseline diverged."""
        return course_of(self.strategy, self.finished)

    @cached_property
    def measured_strategy(self) -> Strategy:
        """The strategy with its threshold, as soon as that is measured; raises as `course`."""
        return self.strategy.with_measured_threshold(self.course.runs)

    @cached_property
    def plan(self) -> PlannedTrial | Wait | Decided:
        """The next step of the search. Raises UserError where the baseline diverged."""
        in_flight = in_flight_runs(self.trials, PARAMETER)
        return plan_trial(self.strategy, self.finished, in_flight, speculate=self.speculate)

    def is_all_before(self, number: int) -> bool:
        """Return whether all trials with lower numbers are known here and have chosen."""
        return len(self.trials) == number and not self.is_choosing_before(number)

    def is_choosing_before(self, number: int) -> bool:
        """Return whether a trial with a lower number has no switch point or no replicate yet.

        Optuna reads one after the other, so that of what was written meanwhile it may have seen
        the replicate, which comes last, and not the switch point.
        """
        return any(
            trial.state == TrialState.RUNNING
            and (PARAMETER not in trial.params or REPLICATE not in trial.user_attrs)
            for trial in self.trials
            if trial.number < number
        )


@dataclass(frozen=True)
class Claim:
    """A run that this process has claimed, and has to make.

    Attributes:
        replicate: Number of this repeat of the switch point, from 0.
        state: The search as it was when this run was planned.
        is_speculative: It is only likely to be needed.
    """

    number: int
    switch_percent: float
    replicate: int
    seed: int
    state: SearchState
    is_speculative: bool = False


def _retryable(function: Callable[..., _T]) -> Callable[..., _T]:
    """Raise RetryableError or DatabaseAwayError where the database is busy or lost."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> _T:
        try:
            return function(*args, **kwargs)
        except UpdateFinishedTrialError as error:
            raise RetryableError("another searcher took this run for stale") from error
        except StorageInternalError as error:
            cause = " ".join(str(error.__cause__ or error).split())[:200]
            kind = DatabaseAwayError if is_away(error.__cause__) else RetryableError
            raise kind(f"the database did not answer: {cause}") from error

    return call


class _SearchSampler(BinarySearchSampler):
    """The sampler of a search, which decides by what our table holds besides: costs, alarms.

    Attributes:
        state: The search as the claiming process read it last. To look again while sampling might
            see other runs than the claim goes by.
    """

    state: SearchState

    def _next_percent(self, study: optuna.Study, trial: FrozenTrial, strategy: Strategy) -> float:
        return self.state.plan.switch_percent


class SearchStudy:
    """An Optuna study whose trials are the runs of one search.

    Attributes:
        stale: Trials that this process gave up, perhaps without being able to say so.
    """

    def __init__(
        self,
        study: optuna.Study,
        storage: optuna.storages.RDBStorage,
        strategy: Strategy,
        sampler: _SearchSampler,
        speculate: bool,
    ) -> None:
        self._study = study
        self._sampler = sampler
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._strategy = strategy
        self._speculate = speculate
        self._trial_ids: dict[int, int] = {}
        self.name = study.study_name
        self.stale: set[int] = set()

    @classmethod
    @_retryable
    def open(
        cls, url: str, name: str, strategy: Strategy, seed: int, *, speculate: bool = True
    ) -> SearchStudy:
        """Create the study, or load the one that is there.

        The seed is for what Optuna samples, which the search does not need. Raises DatabaseError
        where Optuna's tables are of another version.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = open_storage(url)
        sampler = _SearchSampler(strategy, parameter=PARAMETER, seed=seed)
        study = optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            sampler=sampler,
            load_if_exists=True,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            if study.metric_names != [VALUE]:
                study.set_metric_names([VALUE])
        return cls(study, storage, strategy, sampler, speculate)

    def describe(self, attributes: Mapping[str, str | float]) -> None:
        """Set user attributes of the study for Optuna's tools, unless the database is busy."""
        with contextlib.suppress(StorageInternalError):
            known = self._study.user_attrs
            for name, value in attributes.items():
                if known.get(name) != value:
                    self._study.set_user_attr(name, value)

    @_retryable
    def trials(self) -> list[FrozenTrial]:
        """Return all trials as they are now; they must not be changed."""
        with readable(self._storage.url):
            return self._study.get_trials(deepcopy=False)

    def read(self, store: TrialStore) -> SearchState:
        """Return the search as it is now. Our rows, which learn of an end first, are read last."""
        trials = self.trials()
        return SearchState(self._strategy, trials, store.numbered(self.name), self._speculate)

    @_retryable
    def claim(
        self, state: SearchState, owner: Owner, base_seed: int, look: Callable[[], SearchState]
    ) -> Claim | None:
        """Claim the planned trial; return None where others took all that are needed.

        Where others claimed trials since the state was read, `look` reads it anew until they have
        chosen; it has to clear up dead ones. The replicate's seed derives from `base_seed`.
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
        """Let the sampler suggest the switch point; None for one that a user enqueued."""
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
        # Last, as it tells the searchers that wait for this one to go on.
        trial.set_user_attr(REPLICATE, planned.replicate)
        return Claim(trial.number, percent, planned.replicate, seed, state, planned.is_speculative)

    def _trial_id(self, number: int) -> int:
        if number not in self._trial_ids:
            self._trial_ids[number] = self._storage.get_trial_id_from_study_id_trial_number(
                self._study_id, number
            )
        return self._trial_ids[number]

    @_retryable
    def is_running(self, number: int) -> bool:
        """Return whether nobody has finished this trial."""
        return self._storage.get_trial(self._trial_id(number)).state == TrialState.RUNNING

    @_retryable
    def note_result(
        self,
        number: int,
        diverged: bool,
        training_seconds: float | None,
    ) -> None:
        """Set what belongs to the accuracy, before that is told; nothing after the trial's end."""
        trial_id = self._trial_id(number)
        try:
            self._storage.set_trial_user_attr(trial_id, "training_seconds", training_seconds)
            self._storage.set_trial_user_attr(trial_id, "diverged", diverged)
        except UpdateFinishedTrialError:
            return  # another searcher was faster

    @_retryable
    def note_evaluation(self, number: int, evaluation: Evaluation) -> None:
        """Report an accuracy during the run, for Optuna's tools and `status`."""
        with contextlib.suppress(UpdateFinishedTrialError):  # another searcher took it for stale
            self._storage.set_trial_intermediate_value(
                self._trial_id(number), evaluation.worker_step, evaluation.accuracy
            )

    def complete(self, number: int, accuracy: float) -> None:
        """Tell the accuracy, unless somebody has finished the trial."""
        self._tell(number, float(accuracy), TrialState.COMPLETE)

    def fail(self, number: int) -> None:
        """Tell that the run has to be made again, unless somebody has finished the trial."""
        self._tell(number, None, TrialState.FAIL)

    @_retryable
    def _tell(self, number: int, value: float | None, state: TrialState) -> None:
        with contextlib.suppress(UpdateFinishedTrialError):  # another searcher was faster
            self._study.tell(number, value, state=state, skip_if_finished=True)


def owner_of(trial: FrozenTrial) -> Owner | None:
    """Return the process that claimed a trial, if it lived long enough to say so."""
    content = trial.user_attrs.get(_OWNER)
    return Owner(**content) if isinstance(content, dict) else None
