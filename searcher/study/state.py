"""A search as it is stored at one moment: all that one step of it needs, read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from syncswitch.searcher.strategies.base import Decided, Strategy, Wait
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import PlannedTrial, SearchCourse, course_of, plan_trial
from syncswitch.searcher.study.observations import REPLICATE, in_flight_runs, observations_of
from syncswitch.storage.trials.values import StoredTrial

PARAMETER = "switch_percent"
"""Of Optuna's trials."""


@dataclass(frozen=True)
class SearchState:
    """Both accounts of a search; what follows from them is computed once.

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
        """The trials that count: Optuna knows that they are complete."""
        told = (trial.number for trial in self.trials if trial.state == OptunaState.COMPLETE)
        return observations_of(self.rows[number] for number in told if number in self.rows)

    @cached_property
    def course(self) -> SearchCourse:
        """How far the search is. Raises UserError where the baseline diverged."""
        return course_of(self.strategy, self.finished)

    @cached_property
    def plan(self) -> PlannedTrial | Wait | Decided:
        """What to do next. Raises UserError where the baseline diverged."""
        in_flight = in_flight_runs(self.trials, PARAMETER)
        return plan_trial(self.strategy, self.finished, in_flight, speculate=self.speculate)

    def is_all_before(self, number: int) -> bool:
        """Whether all trials with lower numbers are known here, and have chosen."""
        return len(self.trials) == number and not self.is_choosing_before(number)

    def is_choosing_before(self, number: int) -> bool:
        """Whether a trial with a lower number has no switch point or no replicate yet.

        Optuna reads one after the other, so that of what was written meanwhile it may have seen
        the replicate, which comes last, and not the switch point.
        """
        return any(
            trial.state == OptunaState.RUNNING
            and (PARAMETER not in trial.params or REPLICATE not in trial.user_attrs)
            for trial in self.trials
            if trial.number < number
        )
