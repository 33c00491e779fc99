"""What a training shows of its switch."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.searcher.learning.used_job import lessons_of
from syncswitch.searcher.strategies.adaptive.strategy import History
from syncswitch.searcher.strategies.observation import Observation, TrialCost

COST = TrialCost(1.0, 1.0, 0.4)


def test_a_use_that_went_back_is_also_a_run_of_the_first_protocol_alone() -> None:
    sent_back = Observation(25.0, 0.9, cost=COST, alarmed=True)
    failed, baseline = lessons_of(sent_back, 3, seed=7)
    assert (failed.switch_percent, failed.alarmed, failed.cost) == (25.0, True, COST)
    assert (baseline.switch_percent, baseline.alarmed, baseline.cost) == (100.0, False, None)
    assert baseline.accuracy == 0.9


def test_each_switch_that_failed_is_a_lesson_and_that_which_held() -> None:
    lessons = lessons_of(Observation(25.0, 0.9, cost=COST), 3, 7, [(6.25, None), (12.5, None)])
    assert [(one.switch_percent, one.alarmed) for one in lessons] == [
        (6.25, True),
        (12.5, True),
        (25.0, False),
    ]
    assert [one.cost for one in lessons] == [COST, None, None]
    history = History.of(lessons, (6.25, 12.5, 25.0, 100.0))
    assert [history.made(index) for index in range(4)] == [1, 1, 1, 0]
    alone = lessons_of(Observation(100.0, 0.9, cost=COST), 3, 7, [(25.0, None)])
    assert alone == lessons_of(Observation(25.0, 0.9, cost=COST, alarmed=True), 3, 7)


def test_a_failed_switch_that_trained_to_its_end_counts_with_its_accuracy() -> None:
    failed, held = lessons_of(Observation(25.0, 0.9, cost=COST), 3, 7, [(12.5, 0.87)])
    assert failed == replace(held, switch_percent=12.5, accuracy=0.87, cost=COST)
    assert (failed.alarmed, held.accuracy, held.cost) == (False, 0.9, None)


def test_uses_with_one_seed_count_each_but_the_first_protocol_alone_once() -> None:
    runs = [
        *lessons_of(Observation(25.0, 0.9), 0, seed=7),
        *lessons_of(Observation(25.0, 0.91), 1, seed=7),
        *lessons_of(Observation(100.0, 0.9), 2, seed=7),
        *lessons_of(Observation(25.0, 0.9, alarmed=True), 3, seed=7),
    ]
    history = History.of(runs, (25.0, 100.0))
    assert (history.made(0), history.made(1)) == (3, 1)


def test_none_takes_the_place_of_a_trial_of_a_search() -> None:
    trials = [Observation(percent, 0.9, replicate=0) for percent in (25.0, 100.0)]
    runs = [
        *trials,
        *lessons_of(Observation(25.0, 0.9), 0, seed=0),
        *lessons_of(Observation(100.0, 0.9), 1, seed=0),
    ]
    history = History.of(runs, (25.0, 100.0))
    assert (history.made(0), history.made(1)) == (2, 2)
