"""Plans: the names of studies, command lines, and what is refused."""

from __future__ import annotations

import pytest
from generated_trainer import identity

from syncswitch.searcher.api import search
from syncswitch.searcher.command_lines import search_words
from syncswitch.searcher.search.plan import SearchPlan, study_name
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.trials.values import SearchInfo


def test_a_search_for_something_else_has_another_name() -> None:
    strategies = (
        AdaptiveStrategy(),
        AdaptiveStrategy(guarded=False),
        AdaptiveStrategy(guarded=False, keep=0.9),
        AdaptiveStrategy(uses=100),
        PaperStrategy(),
    )
    names = [study_name(identity(), SearchPlan(strategy)) for strategy in strategies]
    assert len(set(names)) == len(names)
    usual = AdaptiveStrategy(guarded=True, uses=30)
    assert names[0] == study_name(identity(), SearchPlan(usual))


def test_the_command_line_of_a_search_says_what_it_looks_for() -> None:
    strategy = AdaptiveStrategy(guarded=False, keep=0.9, uses=100)
    assert _words(strategy)[-5:] == ["--no-guard", "--keep", "0.9", "--uses", "100"]
    assert _words(AdaptiveStrategy())[-2:] == ["--seed", "0"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"guarded": "always"}, "guarded is 'always'"),
        ({"keep": 0.9}, "keep= says how many trainings must keep the accuracy without a guard"),
        ({"keep": "often"}, "keep is 'often'"),
        ({"keep": 1.0}, "keep= is 1.0: give a share above 0.5 and below 1"),
        ({"uses": 0}, "uses= is 0: give a whole number, 1 to 1000000"),
        ({"strategy": "paper", "uses": 10}, 'uses= is not for strategy="paper"'),
    ],
)
def test_python_refuses_what_the_command_line_does(
    options: dict[str, object], said: str, url: str
) -> None:
    with pytest.raises(UserError, match=said):
        search("digits", trainer="simulated", storage=url, **options)  # type: ignore[arg-type]


def test_a_strategy_that_was_made_by_hand_is_checked() -> None:
    with pytest.raises(UserError, match="--keep is 2: give a share above"):
        SearchPlan(AdaptiveStrategy(guarded=False, keep=2)).check()


def _words(strategy: AdaptiveStrategy) -> list[str]:
    search = SearchInfo(
        study="study",
        fingerprint=identity().fingerprint,
        strategy=strategy.name,
        settings=strategy.settings,
        runs=strategy.runs,
        threshold=strategy.threshold,
        target_accuracy=None,
        trainer="local",
        base_seed=0,
        options=strategy.options,
    )
    words = search_words(identity(), "generated", search, RunConditions())
    assert words is not None
    return words
