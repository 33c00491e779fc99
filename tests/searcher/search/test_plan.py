"""Plans: the names of studies, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generated_trainer import identity

from syncswitch.searcher.search.plan import SearchPlan, study_name
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions


def test_a_search_for_something_else_has_another_name() -> None:
    strategies = (
        AdaptiveStrategy(),
        AdaptiveStrategy(guarded=False),
        AdaptiveStrategy(guarded=False, keep=0.9),
        AdaptiveStrategy(uses=100),
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
    usual = SearchPlan(AdaptiveStrategy(guarded=True, uses=30), conditions=RunConditions())
    assert names[0] == study_name(identity(), usual)


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (PaperStrategy(settings=0), "--settings is 0"),
        (PaperStrategy(runs=0), "--runs is 0"),
        (PaperStrategy(threshold=0.0), "--threshold is 0.0"),
        (PaperStrategy(threshold=float("nan")), "--threshold is nan"),
        (PaperStrategy(target_accuracy=1.5), "--target-accuracy is 1.5"),
        (AdaptiveStrategy(guarded=False, keep=2), "--keep is 2: give a share above"),
        (AdaptiveStrategy(uses=0), "--uses is 0: give a whole number, 1 to 1000000"),
        (replace(AdaptiveStrategy().without_threshold(), budget=1.0), "--budget is 1: without a"),
    ],
)
def test_impossible_plans_are_refused(strategy: Strategy, said: str) -> None:
    with pytest.raises(UserError, match=said):
        SearchPlan(strategy).check()
