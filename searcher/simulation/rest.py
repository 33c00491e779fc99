"""Forecasts of the rest of a search, by playing it on with likely results."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from syncswitch.searcher.strategies.base import NextTrial, Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import asked_trials, course_of
from syncswitch.searcher.strategies.trial_costs import TrialCosts

_SEARCHES = 20
_STREAM = 20_262
_MOST_STEPS = 200
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class RestOfSearch:
    """The rest of a search; costs are in trainings with the first protocol alone.

    Attributes:
        runs: Mean number of runs, including those under way.
        cost: Mean cost.
        low_cost: One of ten searches costs less.
        high_cost: One of ten searches costs more.
    """

    runs: float
    cost: float
    low_cost: float
    high_cost: float

    def less(self, cost: float) -> RestOfSearch:
        """Returns what is left after a part of the cost was paid."""
        left = (max(0.0, part - cost) for part in (self.cost, self.low_cost, self.high_cost))
        return RestOfSearch(self.runs, *left)


def rest_of_search(strategy: Strategy, finished: Iterable[Observation]) -> RestOfSearch:
    """Forecasts the rest of a search by playing it to its end 20 times.

    Every run measures one of the values that `Strategy.outcomes` holds for likely by then, and
    costs what `TrialCosts` expects. That a run may diverge is neglected. The same history always
    leads to the same forecast. Raises UserError if the baseline diverged.
    """
    runs = tuple(sorted(finished, key=lambda run: run.trial_number))
    return _rest(strategy, runs)


@functools.lru_cache(maxsize=64)
def _rest(strategy: Strategy, finished: tuple[Observation, ...]) -> RestOfSearch:
    played = [_play_on(strategy, finished, search) for search in range(_SEARCHES)]
    costs = [cost for _, cost in played]
    low, high = np.quantile(costs, [_LOW, _HIGH])
    return RestOfSearch(
        runs=statistics.fmean(runs for runs, _ in played),
        cost=statistics.fmean(costs),
        low_cost=float(low),
        high_cost=float(high),
    )


def _play_on(
    strategy: Strategy, finished: tuple[Observation, ...], search: int
) -> tuple[int, float]:
    """Returns number and cost of the runs until the answer."""
    chance = np.random.default_rng([_STREAM, search])
    numbers = itertools.count(max((run.trial_number for run in finished), default=-1) + 1)
    made, cost = list(finished), 0.0
    # A search ends by itself; the limit is a precaution.
    for _ in range(_MOST_STEPS):
        course = course_of(strategy, made)
        if not isinstance(course.decision, NextTrial):
            break
        percent = course.decision.switch_percent
        accuracy = _drawn(strategy.outcomes(course.runs, percent), float(chance.random()))
        for _, replicate in asked_trials(strategy, course.runs, course.decision):
            prices = TrialCosts.of(made, strategy.highest_percent, strategy.share_prefix)
            cost += prices.next(percent, replicate)
            number = next(numbers)
            made.append(Observation(percent, accuracy, False, number, replicate))
    return len(made) - len(finished), cost


def _drawn(outcomes: Sequence[tuple[float, float]], place: float) -> float:
    """Returns the accuracy at a place between 0 and 1 among the likely ones."""
    for probability, accuracy in outcomes:
        place -= probability
        if place < 0:
            return accuracy
    return outcomes[-1][1]
