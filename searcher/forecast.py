"""Forecasts: of a search from the times of two trainings, and of the rest of one under way."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from syncswitch.searcher.strategies.base import NextTrial, Strategy
from syncswitch.searcher.strategies.observation import Observation, TrialCost, TrialCosts
from syncswitch.searcher.strategies.planner import asked_trials, course_of, decision_after
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import USUAL_THRESHOLD

# Target of a job without a known one; only differences from it count.
_TARGET = 0.5
# A loss above any threshold.
_HOPELESS_LOSS = 2.0
# Generated curves, in beta: the loss per halving below the answer, and the noise.
_SLOPE = 3.0
_STANDARD_DEVIATION = 0.5
_SEARCHES = 20
_STREAM = 20_261


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected cost of a search, in trainings with the first protocol alone, given its answer.

    So many trainings with the policy as `amortized_recurrences` says pay it back.
    """

    switch_percent: float
    runs: float
    search_cost: float
    amortized_recurrences: float
    speed_up: float


def forecast(strategy: Strategy, first_seconds: float, second_seconds: float) -> list[Forecast]:
    """Returns the cost of a search for each answer that halving leads to, the earliest switch last.

    A run at s % is assumed to need s % of the time of the first protocol alone, and the time of the
    second for the rest; none ends early.

    A strategy with a fixed number of repeats is assumed to have neither luck nor bad luck. Others
    make as many runs as the noise of accuracies demands, so 20 searches are played on generated
    accuracies, and runs and costs are their means. From the answer on nothing is lost, every
    halving below it costs 3 beta, and runs differ with a standard deviation of beta / 2.

    Raises UserError if a time is not above 0.
    """
    for name, value in (("first", first_seconds), ("second", second_seconds)):
        if not (math.isfinite(value) and value > 0):
            raise UserError(
                f"the training time with the {name} protocol is {value}: give seconds",
                code="parameter-invalid",
            )
    knees = (strategy.highest_percent / 2**halved for halved in range(strategy.halvings + 1))
    return [_foreseen(strategy, knee, first_seconds, second_seconds) for knee in knees]


def _foreseen(
    strategy: Strategy, knee_percent: float, first_seconds: float, second_seconds: float
) -> Forecast:
    """The searches of a job whose curve has its knee at the answer."""
    lowest_percent = strategy.highest_percent / 2 ** (strategy.halvings + 2)

    def loss_without_luck(percent: float, _: int) -> float:
        return 0.0 if percent >= knee_percent else _HOPELESS_LOSS

    def loss_in(search: int, percent: float, replicate: int) -> float:
        chance = np.random.default_rng([_STREAM, search, round(percent * 1e6), replicate])
        # No halving leads to 0 %.
        below = max(0.0, math.log2(knee_percent / (percent or lowest_percent)))
        noise = _STANDARD_DEVIATION * float(chance.standard_normal())
        # A measured threshold fits any scale of the noise.
        return (strategy.threshold or USUAL_THRESHOLD) * (_SLOPE * below + noise)

    losses: list[Callable[[float, int], float]] = [loss_without_luck]
    if strategy.repeats is None:
        losses = [functools.partial(loss_in, search) for search in range(_SEARCHES)]
    searches = [_searched(strategy, first_seconds, second_seconds, loss_at) for loss_at in losses]
    paid = statistics.fmean(paid for _, paid in searches) / first_seconds
    share = knee_percent / strategy.highest_percent
    policy = (share * first_seconds + (1 - share) * second_seconds) / first_seconds
    return Forecast(
        switch_percent=knee_percent,
        runs=statistics.fmean(runs for runs, _ in searches),
        search_cost=paid,
        amortized_recurrences=ratio_or_infinity(paid, 1 - policy),
        speed_up=1 / policy,
    )


def _searched(
    strategy: Strategy,
    first_seconds: float,
    second_seconds: float,
    loss_at: Callable[[float, int], float],
) -> tuple[int, float]:
    """Lets a strategy search: the number of its runs, and what they cost in seconds."""
    target = _TARGET if strategy.target_accuracy is None else strategy.target_accuracy
    runs: list[Observation] = []
    shared: dict[int, float] = defaultdict(float)  # the first phase that a replicate has
    paid = 0.0
    while isinstance(decision := decision_after(strategy, tuple(runs)), NextTrial):
        for percent, replicate in asked_trials(strategy, runs, decision):
            share = percent / strategy.highest_percent
            first = share * first_seconds
            cost = first + (1 - share) * second_seconds - min(first, shared[replicate])
            if strategy.share_prefix:
                shared[replicate] = max(shared[replicate], first)
            paid += cost
            paces = (first_seconds if share else None, second_seconds if share < 1 else None)
            accuracy = target - loss_at(percent, replicate)
            runs.append(
                Observation(
                    percent,
                    accuracy,
                    trial_number=len(runs),
                    replicate=replicate,
                    cost=TrialCost(cost, *paces),
                )
            )
    return len(runs), paid


def ratio_or_infinity(value: float, unit: float) -> float:
    """Returns the quotient; infinite if the unit is not above 0."""
    return value / unit if unit > 0 else math.inf


_REST_STREAM = 20_262
_MOST_STEPS = 200
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class RestOfSearch:
    """The rest of a search: mean number of runs, those under way included, and mean cost.

    Costs are in trainings with the first protocol alone; one of ten searches costs less than
    `low_cost`, and one more than `high_cost`.
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
    chance = np.random.default_rng([_REST_STREAM, search])
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
