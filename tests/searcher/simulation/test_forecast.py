"""Forecasts from two times."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.simulation.forecast import Forecast, forecast
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.errors import UserError

# Of the paper's first setup: BSP and ASP alone.
TIMES = (10604.0, 1607.0)


@given(
    settings=st.integers(1, 6),
    runs=st.integers(1, 5),
    first=st.floats(1, 1e5),
    share=st.floats(0.05, 1),
    recurring=st.booleans(),
)
def test_a_forecast_knows_every_answer(
    settings: int, runs: int, first: float, share: float, recurring: bool
) -> None:
    strategy = PaperStrategy(settings, runs, target_accuracy=0.9 if recurring else None)
    foreseen = forecast(strategy, first, share * first)
    assert [answer.switch_percent for answer in foreseen] == [
        100 / 2**halvings for halvings in range(settings + 1)
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


@functools.cache
def foreseen_by(strategy: AdaptiveStrategy) -> list[Forecast]:
    return forecast(strategy, *TIMES)


BRIEF = AdaptiveStrategy(settings=2)


def test_the_adaptive_strategy_is_simulated() -> None:
    least = AdaptiveStrategy(settings=1)
    assert forecast(least, *TIMES) == forecast(least, *TIMES)
    foreseen = foreseen_by(BRIEF)
    paper = forecast(PaperStrategy(settings=2), *TIMES)
    assert [answer.switch_percent for answer in foreseen] == [a.switch_percent for a in paper]
    assert [answer.speed_up for answer in foreseen] == [a.speed_up for a in paper]
    for answer, known in zip(foreseen, paper, strict=True):
        assert 0 < answer.runs < known.runs
        assert 0 < answer.search_cost < known.search_cost


def test_the_adaptive_strategy_costs_less_the_more_is_known() -> None:
    """About a fifth of the paper's strategy; early stops, which are not forecast, save more."""
    recurring, unshared, new = (
        next(answer.search_cost for answer in foreseen_by(one) if answer.switch_percent == 25)
        for one in (
            replace(BRIEF, target_accuracy=0.92, target_runs=5),
            replace(BRIEF, share_prefix=False),
            BRIEF,
        )
    )
    paper = forecast(PaperStrategy(settings=2), *TIMES)[2].search_cost
    assert 1.0 < new < paper / 4
    assert recurring < new - 0.15
    assert unshared > new


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_forecast_needs_a_time(seconds: float) -> None:
    with pytest.raises(UserError, match="give seconds"):
        forecast(PaperStrategy(), seconds, 1.0)
