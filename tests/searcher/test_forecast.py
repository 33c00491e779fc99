"""Forecasts: of a search from two times, and of the rest of one under way."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.forecast import RestOfSearch, forecast, rest_of_search
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided, Strategy
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.planner import course_of
from tests.failing import fails

# Of the paper's first setup: BSP and ASP alone.
TIMES = (10604.0, 1607.0)


@given(
    halvings=st.integers(1, 6),
    runs=st.integers(1, 5),
    first=st.floats(1, 1e5),
    share=st.floats(0.05, 1),
    recurring=st.booleans(),
)
def test_a_forecast_knows_every_answer(
    halvings: int, runs: int, first: float, share: float, recurring: bool
) -> None:
    strategy = PaperStrategy(halvings, runs, target_accuracy=0.9 if recurring else None)
    foreseen = forecast(strategy, first, share * first)
    assert [answer.switch_percent for answer in foreseen] == [
        100 / 2**halved for halved in range(halvings + 1)
    ]
    for answer in foreseen:
        assert answer.runs == strategy.most_runs
        assert share * answer.runs <= answer.search_cost * (1 + 1e-9)
        assert answer.search_cost <= answer.runs * (1 + 1e-9)
        assert answer.speed_up * (1 + 1e-9) >= 1
        assert answer.amortized_recurrences >= answer.search_cost
    assert math.isinf(foreseen[0].amortized_recurrences)


def test_the_forecast_of_the_papers_first_setup() -> None:
    """Compares it, from the times of BSP and ASP, with the replayed 12.7."""
    answers = {answer.switch_percent: answer for answer in forecast(PaperStrategy(), *TIMES)}
    assert answers[6.25].search_cost == pytest.approx(12.7, rel=0.05)


def test_the_adaptive_strategy_costs_less_the_more_is_known() -> None:
    """About a fifth of the paper's strategy; early stops, which are not forecast, save more."""
    brief = AdaptiveStrategy(halvings=2)
    recurring = replace(brief, target_accuracy=0.92, target_runs=5)
    known, unshared, foreseen, paper = (
        forecast(one, *TIMES)
        for one in (recurring, replace(brief, share_prefix=False), brief, PaperStrategy(halvings=2))
    )
    for one, of_paper in zip(foreseen, paper, strict=True):
        assert (one.switch_percent, one.speed_up) == (of_paper.switch_percent, of_paper.speed_up)
        assert 0 < one.runs < of_paper.runs
        assert 0 < one.search_cost < of_paper.search_cost
    assert 1.0 < foreseen[2].search_cost < paper[2].search_cost / 4
    assert known[2].search_cost < foreseen[2].search_cost - 0.15
    assert unshared[2].search_cost > foreseen[2].search_cost


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_forecast_needs_a_time(seconds: float) -> None:
    with fails("parameter-invalid", "give seconds"):
        forecast(PaperStrategy(), seconds, 1.0)


RULES = (AdaptiveStrategy(halvings=3), PaperStrategy(halvings=3, runs=2))


def run(number: int, percent: float, accuracy: float = 0.9, replicate: int = 0) -> Observation:
    cost = TrialCost(50.0, 100.0, 40.0)
    return Observation(percent, accuracy, False, number, replicate, cost=cost)


def test_runs_that_are_certain_cost_what_they_will() -> None:
    strategy = PaperStrategy(halvings=1, runs=2, target_accuracy=0.9)
    # Two runs at 50 %, the second protocol being taken for 0.3 times as long as the first.
    assert rest_of_search(strategy, []) == RestOfSearch(2, *[pytest.approx(1.3)] * 3)
    # Now it is known to take 0.4 times as long, and one of the runs is made.
    assert rest_of_search(strategy, [run(0, 50.0)]) == RestOfSearch(1, *[pytest.approx(0.7)] * 3)
    # One that was made in advance is not made again.
    unknown = PaperStrategy(halvings=1, runs=1)
    assert rest_of_search(unknown, [run(0, 50.0)]) == RestOfSearch(1, *[pytest.approx(1.0)] * 3)
    assert RestOfSearch(3, 2.0, 0.5, 4.0).less(1.0) == RestOfSearch(3, 1.0, 0.0, 3.0)


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
@pytest.mark.parametrize("accuracies", [[], [0.88], [0.95, 0.9, 0.5]])
def test_the_mean_lies_among_the_cases(strategy: Strategy, accuracies: list[float]) -> None:
    made = [run(n, 100 / 2**n, accuracy) for n, accuracy in enumerate(accuracies)]
    rest = rest_of_search(strategy, made)
    assert 0 <= rest.low_cost <= rest.high_cost
    assert 0 <= rest.cost <= 20
    assert rest == rest_of_search(strategy, made[::-1])
