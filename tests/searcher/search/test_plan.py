"""Plans: the names of studies, and warnings before a search costs much."""

from __future__ import annotations

import pytest
from generated_trainer import identity

from syncswitch.searcher.search.observer import never_moved
from syncswitch.searcher.search.plan import SearchPlan, steps_of, study_name, too_short
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import Evaluation
from tests.identities import GENERATED
from tests.records import changed
from tests.wording import Said


def test_a_search_for_something_else_has_another_name() -> None:
    strategies = (
        AdaptiveStrategy(),
        AdaptiveStrategy(guarded=False),
        AdaptiveStrategy(guarded=False, min_kept_share=0.9),
        AdaptiveStrategy(expected_runs=100),
        PaperStrategy(),
    )
    conditions = (
        RunConditions(online="greedy"),
        RunConditions(switch_mechanism="restart"),
        RunConditions(injections=("kill:ps,at=60%",)),
        RunConditions(injections=("kill:ps,at=60%", "kill:ps,at=70%")),
    )
    plans = [
        *map(SearchPlan, strategies),
        *(SearchPlan(conditions=one) for one in conditions),
        *(SearchPlan(pairs=("bsp,asp", second)) for second in ("bsp,ssp:3", "bsp,gba:3")),
        SearchPlan(trainer="replay"),
        SearchPlan(base_seed=1),
    ]
    names = [study_name(identity(), plan) for plan in plans]
    assert len(set(names)) == len(names)
    usual = SearchPlan(AdaptiveStrategy(guarded=True, expected_runs=30), conditions=RunConditions())
    assert names[0] == study_name(identity(), usual)


def test_switch_points_of_a_short_job(said: Said) -> None:
    for steps, workers, halvings in (
        (128, 4, 5),
        (64, 4, 5),
        (64, 4, 4),
        (1000, 16, 8),
        (64, 1, 5),
    ):
        job = changed(GENERATED, total_worker_steps=steps, workers=workers)
        strategy = AdaptiveStrategy(halvings=halvings)
        found = too_short(job, strategy)
        said(found)
        distinct = strategy.distinct(steps_of(job, "bsp"))
        assert too_short(job, distinct) is None
        assert (distinct == strategy) == (found is None)


def test_of_switch_points_with_one_step_the_nearest_stays() -> None:
    job = changed(GENERATED, total_worker_steps=3, workers=1)
    assert AdaptiveStrategy(halvings=6).distinct(steps_of(job, "bsp")).grid() == (25.0, 75.0, 100.0)
    paper = PaperStrategy(halvings=3)
    assert paper.distinct(steps_of(job, "bsp")) == paper


@pytest.mark.parametrize(
    ("accuracies", "interval", "is_told"),
    [
        ([0.1] * 5, 100, True),
        ([0.1] * 5, 99, False),  # not yet half of the run
        ([0.1] * 6, 100, False),  # told one test before
        ([0.1] * 4, 200, False),  # too few tests
        ([0.1] * 4 + [0.1001], 100, False),
        ([0.9] + [0.1] * 4, 100, False),
    ],
)
def test_a_metric_that_never_moves_is_told_at_half_of_the_run(
    accuracies: list[float], interval: int, *, is_told: bool
) -> None:
    evaluations = [
        Evaluation(interval * number, 1.0, accuracy, 0.5)
        for number, accuracy in enumerate(accuracies, 1)
    ]
    assert never_moved(changed(GENERATED, total_worker_steps=1000), evaluations) == (
        "accuracy was 0.1000 in all 5 evaluations of half a run, so switch points cannot be"
        " compared: check the metric, the labels and the learning rate"
        if is_told
        else None
    )
