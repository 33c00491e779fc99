"""A search at one moment, and what this process has claimed of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from syncswitch.searcher.search.observations import REPLICATE, in_flight_runs, observations_of
from syncswitch.searcher.strategies.base import Decided, Strategy, Wait
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import PlannedTrial, SearchCourse, course_of, plan_trial
from syncswitch.storage.trials.values import StoredTrial

PARAMETER = "switch_percent"
"""The parameter of Optuna's trials."""


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
