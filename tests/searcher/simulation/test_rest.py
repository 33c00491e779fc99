"""Forecasts of the rest of a search."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.simulation.rest import RestOfSearch, rest_of_search
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided, Strategy
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.planner import course_of
from syncswitch.storage.errors import UserError

RULES = (AdaptiveStrategy(settings=3), PaperStrategy(settings=3, runs=2))


def run(number: int, percent: float, accuracy: float = 0.9, replicate: int = 0) -> Observation:
    cost = TrialCost(50.0, 100.0, 40.0)
    return Observation(percent, accuracy, False, number, replicate, cost=cost)


def test_runs_that_are_certain_cost_what_they_will() -> None:
    strategy = PaperStrategy(settings=1, runs=2, target_accuracy=0.9)
    # Two runs at 50 %, the second protocol being taken for 0.3 times as long as the first.
    assert rest_of_search(strategy, []) == RestOfSearch(2, *[pytest.approx(1.3)] * 3)
    # Now it is known to take 0.4 times as long, and one of the runs is made.
    assert rest_of_search(strategy, [run(0, 50.0)]) == RestOfSearch(1, *[pytest.approx(0.7)] * 3)


@pytest.mark.parametrize("strategy", RULES)
def test_nothing_comes_after_the_answer(strategy: Strategy) -> None:
    made = [
        run(4 * index + replicate, percent, 0.9 if percent >= 50 else 0.5, replicate)
        for index, percent in enumerate((100.0, 75.0, 50.0, 25.0))
        for replicate in range(4)
    ]
    made += [run(100 + replicate, 37.5, 0.5, replicate) for replicate in range(2)]
    made += [run(110 + replicate, 43.75, 0.5, replicate) for replicate in range(2)]
    assert isinstance(course_of(strategy, made).decision, Decided)
    assert rest_of_search(strategy, made) == RestOfSearch(0, 0, 0, 0)


@pytest.mark.parametrize("strategy", RULES)
@given(st.lists(st.sampled_from([0.95, 0.9, 0.88, 0.5]), max_size=3))
def test_the_mean_lies_among_the_cases(strategy: Strategy, accuracies: list[float]) -> None:
    made = [run(n, 100 / 2**n, accuracy) for n, accuracy in enumerate(accuracies)]
    rest = rest_of_search(strategy, made)
    assert 0 <= rest.low_cost <= rest.high_cost
    assert 0 <= rest.cost <= 20
    assert rest == rest_of_search(strategy, made[::-1])


def test_a_run_that_was_made_in_advance_is_not_made_again() -> None:
    strategy = PaperStrategy(settings=1, runs=1)
    early = [run(0, 50.0)]
    assert rest_of_search(strategy, early).runs == 1
    assert rest_of_search(strategy, early).cost == pytest.approx(1.0)


def test_a_diverged_baseline_has_no_rest() -> None:
    with pytest.raises(UserError, match="diverged"):
        rest_of_search(
            AdaptiveStrategy(),
            [replace(run(n, 100.0, replicate=n), diverged=True) for n in range(2)],
        )


def test_what_was_paid_comes_no_more() -> None:
    assert RestOfSearch(3, 2.0, 0.5, 4.0).less(1.0) == RestOfSearch(3, 1.0, 0.0, 3.0)
