"""What a training shows of its switch, and where the next one of its job switches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncswitch.searcher.learning import lessons_of
from syncswitch.searcher.search.policy_words import uses_sentence, uses_text
from syncswitch.searcher.strategies.adaptive.strategy import (
    AdaptiveStrategy,
    Assessment,
    counted_runs,
)
from syncswitch.searcher.strategies.base import Decided, Decision, NextTrial
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.storage.uses.summary import UseSummary

COST = TrialCost(1.0, 1.0, 0.4)
TARGET = 0.9
SECOND = 0.4
STRATEGY = AdaptiveStrategy(settings=4, threshold=0.01, share_prefix=False, early_stop=False)
USES = 40


def use(percent: float, number: int, *, fails: bool = False) -> list[Observation]:
    """What a guarded training shows; its accuracy swings by two thousandths."""
    share = percent / 100
    trained = Observation(
        percent,
        TARGET + 0.002 * (-1) ** number,
        cost=TrialCost(
            share + (1 - share) * SECOND + fails * (1 - share),
            1.0 if share else None,
            SECOND if share < 1 else None,
        ),
        alarmed=fails,
    )
    return lessons_of(trained, number, seed=number)


def next_use(runs: list[Observation], uses_left: int) -> Decision:
    return Assessment(STRATEGY, runs, uses_left).decision()


def test_each_switch_that_failed_is_a_lesson_and_that_which_held() -> None:
    lessons = lessons_of(Observation(25.0, 0.9, cost=COST), 3, 7, [(6.25, None), (12.5, None)])
    assert [(one.switch_percent, one.alarmed) for one in lessons] == [
        (6.25, True),
        (12.5, True),
        (25.0, False),
    ]
    assert [one.cost for one in lessons] == [COST, None, None]
    assert len(counted_runs(lessons, (6.25, 12.5, 25.0, 100.0))) == 3
    alone = lessons_of(Observation(100.0, 0.9, cost=COST), 3, 7, [(25.0, None)])
    assert alone == lessons_of(Observation(25.0, 0.9, cost=COST, alarmed=True), 3, 7)


def test_a_failed_switch_that_trained_to_its_end_counts_with_its_accuracy() -> None:
    failed, held = lessons_of(Observation(25.0, 0.9, cost=COST), 3, 7, [(12.5, 0.87)])
    assert failed == replace(held, switch_percent=12.5, accuracy=0.87, cost=COST)
    assert (failed.alarmed, held.accuracy, held.cost) == (False, 0.9, None)


def test_uses_with_one_seed_count_each_but_the_first_protocol_alone_once() -> None:
    """And none takes the place of a trial of a search."""
    runs = [
        *(Observation(percent, 0.9, replicate=0) for percent in (25.0, 100.0)),
        *lessons_of(Observation(25.0, 0.9), 0, seed=7),
        *lessons_of(Observation(25.0, 0.91), 1, seed=7),
        *lessons_of(Observation(100.0, 0.9), 2, seed=7),
        *lessons_of(Observation(25.0, 0.9, alarmed=True), 3, seed=7),
    ]
    counted = [run.switch_percent for run in counted_runs(runs, (25.0, 100.0))]
    assert (counted.count(25.0), counted.count(100.0)) == (4, 2)


@pytest.mark.parametrize("good_from_percent", [12.5, 25.0, 50.0, 100.0])
def test_it_begins_with_the_first_protocol_alone_and_finds_the_earliest_good_switch(
    good_from_percent: float,
) -> None:
    runs: list[Observation] = []
    percents: list[float] = []
    while isinstance(decision := next_use(runs, USES - len(percents)), NextTrial):
        percent = decision.switch_percent
        runs += use(percent, len(percents), fails=percent < good_from_percent)
        percents.append(percent)
        # Exploring is what a few of many uses are for.
        assert len(percents) <= 12
    assert isinstance(decision, Decided)
    assert decision.switch_percent == good_from_percent
    assert decision.target_accuracy == pytest.approx(0.9, abs=0.003)
    assert percents[0] == 100.0
    assert next_use([Observation(100.0, 0.1, diverged=True)], 10) == NextTrial(100.0)


def test_many_uses_try_an_earlier_switch() -> None:
    runs = [one for number in range(8) for one in use((100.0, 25.0)[number > 1], number)]
    exploring = next_use(runs, 1000)
    assert isinstance(exploring, NextTrial)
    assert exploring.switch_percent < 25.0


@pytest.mark.parametrize(
    ("uses", "kept", "alarms", "speed_up", "expected"),
    [
        (0, 0, 0, None, "not used yet"),
        (41, 39, 0, 1.43, "used 41 times, 39 kept, 1.43 times as fast"),
        (41, 39, 2, 1.43, "used 41 times, 39 kept, 1.43 times as fast; the guard went back twice"),
        (1, 0, 1, None, "used once, 0 kept; the guard went back once"),
        (1234, 1200, 0, None, "used 1,234 times, 1,200 kept"),
    ],
)
def test_the_uses_of_a_policy_in_a_few_words(
    uses: int, kept: int, alarms: int, speed_up: float | None, expected: str
) -> None:
    summary = UseSummary(uses, kept, alarms, 0, None, speed_up, None)
    assert uses_text(summary) == expected
    assert uses_sentence(summary) == f"{expected[0].upper()}{expected[1:]}."
