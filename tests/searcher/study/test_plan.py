"""Which searches are the same study, and how one is written as a command line."""

from __future__ import annotations

import pytest
from generated_trainer import identity

from syncswitch.searcher import search
from syncswitch.searcher.strategies.adaptive import AdaptiveRule
from syncswitch.searcher.strategies.paper import PaperRule
from syncswitch.searcher.study.plan import SearchPlan, study_name
from syncswitch.searcher.text.command_lines import search_words
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.trials.store import SearchInfo


def test_a_search_for_something_else_has_another_name() -> None:
    rules = (
        AdaptiveRule(),
        AdaptiveRule(criterion="mean"),
        AdaptiveRule(keep=0.9),
        AdaptiveRule(uses=100),
        PaperRule(),
    )
    names = [study_name(identity(), SearchPlan(rule)) for rule in rules]
    assert len(set(names)) == len(names)
    assert names[0] == study_name(identity(), SearchPlan(AdaptiveRule(criterion="kept", uses=30)))
    # As it was when the mean was the only criterion, so that such searches go on.
    assert names[1].endswith("-40e96e7e")


def test_the_command_line_of_a_search_says_what_it_looks_for() -> None:
    rule = AdaptiveRule(criterion="kept", keep=0.9, uses=100)
    assert _words(rule)[-4:] == ["--keep", "0.9", "--uses", "100"]
    assert _words(AdaptiveRule(criterion="mean"))[-2:] == ["--criterion", "mean"]
    assert _words(AdaptiveRule())[-2:] == ["--seed", "0"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"criterion": "best"}, "criterion is 'best'"),
        ({"keep": "often"}, "keep is 'often'"),
        ({"keep": 1.0}, "--keep is 1.0: give a share above 0.5 and below 1"),
        ({"uses": 0}, "--uses is 0: give a whole number, 1 to 1000000"),
        ({"strategy": "paper", "uses": 10}, "--uses is not for --strategy paper"),
    ],
)
def test_python_refuses_what_the_command_line_does(
    options: dict[str, object], said: str, url: str
) -> None:
    with pytest.raises(UserError, match=said):
        search("digits", trainer="simulated", storage=url, **options)  # type: ignore[arg-type]


def test_a_rule_that_was_made_by_hand_is_checked() -> None:
    with pytest.raises(UserError, match="--criterion is best: give kept or mean"):
        SearchPlan(AdaptiveRule(criterion="best")).check()


def _words(rule: AdaptiveRule) -> list[str]:
    search = SearchInfo(
        study="study",
        fingerprint=identity().fingerprint,
        strategy=rule.name,
        settings=rule.settings,
        runs=rule.runs,
        threshold=rule.threshold,
        target_accuracy=None,
        trainer="local",
        base_seed=0,
        options=rule.options,
    )
    words = search_words(identity(), "generated", search, RunConditions())
    assert words is not None
    return words
