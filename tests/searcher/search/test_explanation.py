"""Explanations: the strategy is asked again; and their words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncswitch.searcher.search.explanation import (
    ExplainedRun,
    Explanation,
    Untried,
    belief_cells,
    belief_sentence,
    explain,
    why_sentences,
)
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided, NextTrial, Strategy, SwitchPointBelief
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.metric import Metric
from tests.searcher.strategies.strategy_contract import played
from tests.wording import Said

FIRST_SECONDS, SECOND_SECONDS = 60.0, 15.0
GOOD_FROM_PERCENT = 25.0
ANSWER_PERCENT = 25.0
ADAPTIVE = AdaptiveStrategy(halvings=4, share_prefix=False, early_stop=False)
BARE = replace(ADAPTIVE, guarded=False)


def run(percent: float, replicate: int, number: int) -> Observation:
    """Returns a run with an accuracy near 0.9 from 25 % on, and near 0.8 below."""
    share, usual = percent / 100, 0.9 if percent >= GOOD_FROM_PERCENT else 0.8
    return Observation(
        percent,
        usual + 0.001 * (-1) ** replicate,
        trial_number=number,
        replicate=replicate,
        cost=TrialCost(
            share * FIRST_SECONDS + (1 - share) * SECOND_SECONDS,
            FIRST_SECONDS if share else None,
            SECOND_SECONDS if share < 1 else None,
        ),
    )


def searched(strategy: Strategy, most: int = 100) -> list[Observation]:
    """Returns the first runs of a search."""
    return played(strategy, run)[:most]


@pytest.fixture(scope="module")
def found() -> Explanation:
    return explain(ADAPTIVE, searched(ADAPTIVE))


def test_what_was_believed_after_each_run_is_what_the_strategy_believed(found: Explanation) -> None:
    runs = searched(ADAPTIVE)
    assert [one.run for one in found.runs] == runs
    for number, one in enumerate(found.runs, start=1):
        assert one.beliefs == ADAPTIVE.beliefs(runs[:number])
    assert found.answer == ADAPTIVE.decide(runs)
    assert found.is_decided
    answer = found.answer
    assert answer is not None
    assert answer.switch_percent == ANSWER_PERCENT
    (belief,) = (one for one in found.beliefs if one.switch_percent == ANSWER_PERCENT)
    assert (belief.good_probability, belief.kept_share) == (
        answer.promise.confidence,
        answer.promise.kept_share,
    )
    assert belief.low_accuracy < 0.9 < belief.high_accuracy


@pytest.mark.parametrize(("strategy", "why_later"), [(ADAPTIVE, "price"), (BARE, "later")])
def test_it_is_said_why_a_switch_point_was_never_tried(
    strategy: AdaptiveStrategy, why_later: str
) -> None:
    told = explain(strategy, searched(strategy))
    assert told.answer is not None
    tried = {one.run.switch_percent for one in told.runs}
    assert {one.switch_percent for one in told.untried} == set(strategy.grid()) - tried
    for one in told.untried:
        is_later = one.switch_percent > told.answer.switch_percent
        assert one.why == (why_later if is_later else "price")
    believed = {one.switch_percent: one.good_probability for one in told.beliefs}
    assert all(one.good_probability == believed[one.switch_percent] for one in told.untried)


def test_a_spent_budget_is_named_where_a_run_would_have_been_next() -> None:
    poor = replace(ADAPTIVE, budget=1.0)
    runs = searched(poor)
    wanted = ADAPTIVE.decide(runs)
    assert isinstance(poor.decide(runs), Decided)
    assert isinstance(wanted, NextTrial)
    untried = {one.switch_percent: one.why for one in explain(poor, runs).untried}
    assert untried[wanted.switch_percent] == "budget"


def test_a_search_under_way_has_open_switch_points() -> None:
    begun = explain(ADAPTIVE, searched(ADAPTIVE, most=1))
    assert not begun.is_decided
    assert {one.why for one in begun.untried} == {"open"}
    nothing = explain(ADAPTIVE, [])
    assert (nothing.answer, nothing.beliefs, nothing.untried) == (None, (), ())


def test_a_strategy_without_a_belief_says_where_it_did_not_come() -> None:
    paper = PaperStrategy(halvings=4, runs=1)
    told = explain(paper, searched(paper))
    assert told.answer is not None
    assert told.answer.switch_percent == GOOD_FROM_PERCENT
    assert told.beliefs == ()
    tried = {one.run.switch_percent for one in told.runs}
    assert told.untried == tuple(
        Untried(percent, None, "later" if percent > GOOD_FROM_PERCENT else "order")
        for percent in paper.grid()
        if percent not in tried
    )


GRID = (6.25, 12.5, 25.0, 50.0, 100.0)


def beliefs(*good: float) -> tuple[SwitchPointBelief, ...]:
    return tuple(
        SwitchPointBelief(percent, probability, 0.96, 0.91, 0.93)
        for percent, probability in zip(GRID, good, strict=True)
    )


WHY = Explanation(
    strategy=AdaptiveStrategy(halvings=4, guarded=False),
    runs=(
        ExplainedRun(Observation(100.0, 0.0, diverged=True), ()),
        ExplainedRun(Observation(100.0, 0.92), beliefs(0.1, 0.2, 0.3, 0.6, 1.0)),
        ExplainedRun(Observation(50.0, 0.9, alarmed=True), beliefs(0.1, 0.3, 0.52, 0.814, 1.0)),
    ),
    answer=Decided(50.0, 0.92),
    is_decided=True,
    allowed=AllowedLoss(0.01),
    untried=(
        Untried(6.25, 0.1, "price"),
        Untried(12.5, 0.3, "price"),
        Untried(25.0, 0.52, "budget"),
    ),
)


def test_the_rows_have_the_switch_points_with_runs_and_their_neighbours() -> None:
    rows = [belief_cells(WHY, number, Metric()) for number in range(3)]
    titles = ["run", "switch at", "accuracy", "25 %", "50 %", "100 %"]
    assert [[title for title, _ in row] for row in rows] == [titles] * 3
    assert [[text for _, text in row] for row in rows] == [
        ["1", "100 %", "diverged", "-", "-", "-"],
        ["2", "100 %", "0.9200", "30 %", "60 %", "100 %"],
        ["3", "50 %", "alarm", "52 %", "81 %", "100 %"],
    ]
    guarded = replace(WHY, strategy=AdaptiveStrategy())
    assert [title for title, _ in belief_cells(guarded, 0, Metric())[3:]] == ["25 %", "50 %"]
    assert [belief_sentence(why) for why in (WHY, guarded)] == [
        "The probability after each run that a switch there keeps the accuracy often enough.",
        "The probability after each run that guarded runs with a switch there save time.",
    ]


def test_all_of_it_is_said_once_and_what_is_not_there_too(said: Said) -> None:
    said(*why_sentences(WHY, "BSP", Metric()))
    said(*why_sentences(replace(WHY, runs=(), untried=()), "BSP", Metric()))
    said(*why_sentences(replace(WHY, answer=None), "BSP", Metric()))


@pytest.mark.parametrize(
    ("second", "owns_momentum", "is_recorded"),
    [
        ("asp", True, True),
        ("asp", False, False),
        *((f"{name}:semi-sync", False, True) for name in ("local-sgd:8", "qsr:4:0.16")),
        *((f"local-sgd:8:{words}", False, False) for words in ("zeroed:semi-sync", "growing")),
        ("ssp:3", True, False),
    ],
)
def test_it_says_what_recorded_jobs_with_the_same_second_phase_bear(
    said: Said, second: str, *, owns_momentum: bool, is_recorded: bool
) -> None:
    why = replace(WHY, strategy=AdaptiveStrategy(owns_momentum=owns_momentum), runs=(), untried=())
    with_phase = why_sentences(why, "BSP", Metric(), second)
    added = [one for one in with_phase if one not in why_sentences(why, "BSP", Metric())]
    assert len(added) == is_recorded
    if is_recorded:
        said(*added)


def test_an_error_is_said_as_it_is() -> None:
    error = Metric("MeanAbsoluteError", "min", "km", 0.0, None)
    last = tuple(
        replace(one, low_accuracy=-13.5, high_accuracy=-12.0)
        for one in beliefs(0.1, 0.3, 0.52, 0.8, 1.0)
    )
    why = replace(WHY, runs=(ExplainedRun(Observation(50.0, -12.5), last),))
    assert belief_cells(why, 0, error)[2] == ("MeanAbsoluteError", "12.5000 km")
    sure = why_sentences(why, "BSP", error)[0]
    assert "between 12.0000 km and 13.5000 km with a probability of 90 %" in sure
