"""Where the next training of a job switches, while each is a run of a search."""

from __future__ import annotations

import pytest

from syncswitch.searcher.strategies.adaptive.strategy import Assessment
from syncswitch.searcher.strategies.base import Decided, Decision, NextTrial
from syncswitch.searcher.strategies.observation import Observation
from tests.searcher.learning.conftest import GOOD_FROM_PERCENT, STRATEGY, use

USES = 40


def next_use(runs: list[Observation], uses_left: int) -> Decision:
    return Assessment(STRATEGY, runs, uses_left).decision()


def learnt(good_from_percent: float) -> tuple[list[float], Decided]:
    """Switch points until there is an answer, and that."""
    runs: list[Observation] = []
    percents: list[float] = []
    while isinstance(decision := next_use(runs, max(1, USES - len(percents))), NextTrial):
        percent = decision.switch_percent
        runs += use(percent, len(percents), fails=percent < good_from_percent)
        percents.append(percent)
        assert len(percents) < USES
    assert isinstance(decision, Decided)
    return percents, decision


def test_it_begins_with_the_first_protocol_alone() -> None:
    assert next_use([], 10) == NextTrial(100.0)
    diverged = Observation(100.0, 0.1, diverged=True)
    assert next_use([diverged], 10) == NextTrial(100.0)


@pytest.mark.parametrize("good_from_percent", [12.5, GOOD_FROM_PERCENT, 50.0, 100.0])
def test_it_finds_the_earliest_good_switch(good_from_percent: float) -> None:
    percents, decided = learnt(good_from_percent)
    assert decided.switch_percent == good_from_percent
    assert decided.target_accuracy == pytest.approx(0.9, abs=0.003)
    assert percents[0] == 100.0
    # Exploring is what a few of many uses are for.
    assert len(percents) <= 12


def test_many_uses_try_an_earlier_switch() -> None:
    runs = [one for number in range(8) for one in use((100.0, 25.0)[number > 1], number)]
    exploring = next_use(runs, 1000)
    assert isinstance(exploring, NextTrial)
    assert exploring.switch_percent < 25.0
