"""Explanations, word by word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncswitch.searcher.search.explanation import (
    Change,
    ExplainedRun,
    Explanation,
    Untried,
    belief_cells,
    belief_sentence,
    why_sentences,
)
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.progress import SwitchPointBelief
from syncswitch.storage.records.metric import Metric

GRID = (6.25, 12.5, 25.0, 50.0, 100.0)


def beliefs(*good: float) -> tuple[SwitchPointBelief, ...]:
    return tuple(
        SwitchPointBelief(percent, probability, 0.96, 0.91, 0.93)
        for percent, probability in zip(GRID, good, strict=True)
    )


WHY = Explanation(
    strategy=AdaptiveStrategy(settings=4, guarded=False),
    runs=(
        ExplainedRun(Observation(100.0, 0.0, diverged=True), ()),
        ExplainedRun(Observation(100.0, 0.92), beliefs(0.1, 0.2, 0.3, 0.6, 1.0)),
        ExplainedRun(Observation(50.0, 0.9, alarmed=True), beliefs(0.1, 0.3, 0.52, 0.814, 1.0)),
    ),
    answer=Decided(50.0, 0.92),
    is_decided=True,
    untried=(
        Untried(6.25, 0.1, "price"),
        Untried(12.5, 0.3, "price"),
        Untried(25.0, 0.52, "budget"),
    ),
    changes=(
        Change(50.0, 1, 0.9, fails=True, answer_percent=100.0, next_percent=None),
        Change(25.0, 2, 0.92, fails=False, answer_percent=25.0, next_percent=12.5),
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
    guarded = belief_cells(replace(WHY, strategy=AdaptiveStrategy()), 0, Metric())
    assert [title for title, _ in guarded[3:]] == ["25 %", "50 %"]


def test_the_rows_are_explained_by_what_the_search_goes_by() -> None:
    assert belief_sentence(WHY) == (
        "How likely a switch there keeps the accuracy often enough, as believed after each run."
    )
    assert belief_sentence(replace(WHY, strategy=AdaptiveStrategy())) == (
        "How likely guarded trainings with a switch there save time, as believed after each run."
    )


def test_all_of_it_is_said_once() -> None:
    assert why_sentences(WHY, "BSP", Metric()) == [
        "One more run with the switch at 50 % ends between 0.9100 and 0.9300 with 90 %, and within"
        " 0.01 of BSP's mean accuracy with 96 %.",
        "Never tried: 6.25 % (10 % likely) and 12.5 % (30 % likely): a run there costs more than it"
        " promises to save.",
        "Never tried: 25 % (52 % likely): the search's budget was spent.",
        "One more run with the switch at 50 % that fails (accuracy 0.9000) would move the answer to"
        " BSP alone.",
        "2 more runs with the switch at 25 % all reaching the target (0.9200) would move the answer"
        " to 25 %, and the search would go on at 12.5 %.",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"changes": ()}, "None of the further runs that were considered would change the answer."),
        (
            {"runs": (), "untried": ()},
            "This strategy decides by the mean of a fixed number of runs and believes nothing.",
        ),
        (
            {"answer": None},
            "There is no answer yet: no run has been measured that it could be compared with.",
        ),
    ],
)
def test_what_is_not_there_is_said_too(changes: dict[str, Any], said: str) -> None:
    assert why_sentences(replace(WHY, **changes), "BSP", Metric())[-1] == said


def test_an_error_is_said_as_it_is() -> None:
    error = Metric("MeanAbsoluteError", "min", "km", 0.0, None)
    why = replace(
        WHY,
        runs=(
            ExplainedRun(Observation(100.0, -12.5), beliefs(0.1, 0.2, 0.3, 0.6, 1.0)),
            ExplainedRun(
                Observation(50.0, -13.0),
                tuple(
                    replace(one, low_accuracy=-13.5, high_accuracy=-12.0)
                    for one in beliefs(0.1, 0.3, 0.52, 0.8, 1.0)
                ),
            ),
        ),
        changes=(Change(50.0, 1, -15.0, fails=True, answer_percent=100.0, next_percent=None),),
    )
    assert belief_cells(why, 0, error)[2] == ("MeanAbsoluteError", "12.5000 km")
    sure, *_, change = why_sentences(why, "BSP", error)
    assert sure == (
        "One more run with the switch at 50 % ends between 12.0000 km and 13.5000 km with 90 %, and"
        " within 0.01 km of BSP's mean MeanAbsoluteError with 96 %."
    )
    assert change == (
        "One more run with the switch at 50 % that fails (MeanAbsoluteError 15.0000 km) would move"
        " the answer to BSP alone."
    )
