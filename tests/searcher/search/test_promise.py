"""The promise of a strategy arrives in the policy and in `run --json`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from generated_trainer import ASP_SECONDS, BSP_SECONDS, GeneratedTrainer, identity

from syncswitch.cli.search.launch.result import result_as_json
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import Search, SearchResult
from syncswitch.searcher.strategies import registry as by_name
from syncswitch.searcher.strategies.base import Decided, Decision
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry


@dataclass(frozen=True, slots=True)
class PromisingStrategy(PaperStrategy):
    """The paper's search, with a promise."""

    guarded: bool = True

    @property
    def name(self) -> str:
        return "promising"

    def decide(self, finished: Iterable[Observation]) -> Decision:
        decision = PaperStrategy.decide(self, finished)
        if not isinstance(decision, Decided):
            return decision
        return replace(
            decision,
            confidence=0.8,
            kept_share=0.93,
            delivered_share=0.961,
            expected_time=0.412,
            baseline_kept_share=0.954,
            reason="saves no time" if decision.switch_percent == 100 else None,
        )


@pytest.fixture(autouse=True)
def _a_strategy_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(by_name._BY_NAME, "promising", PromisingStrategy)


def found(url: str, **options: float) -> SearchResult:
    with open_database(url, create=True) as database:
        plan = SearchPlan(PromisingStrategy(3, 2))
        result = Search(database, identity(), plan, lambda: GeneratedTrainer(**options)).run()
        assert PolicyRegistry(database).policies() == [result.policy]
        return result


def test_a_policy_says_what_its_strategy_promised(url: str) -> None:
    result = found(url)
    policy = result.policy
    assert (policy.guarded, policy.keep, policy.confidence) == (True, None, 0.8)
    assert (policy.kept_share, policy.delivered_share) == (0.93, 0.961)
    assert (policy.baseline_kept_share, policy.expected_time) == (0.954, 0.412)
    assert policy.reason is None
    speed_up = BSP_SECONDS / (BSP_SECONDS / 8 + ASP_SECONDS * 7 / 8)
    assert policy.speed_up_low == pytest.approx(speed_up)
    assert policy.speed_up_high == pytest.approx(speed_up)
    content = result_as_json(result)
    assert content["policy"]["kept_share"] == 0.93
    assert content["policy"]["delivered_share"] == 0.961
    assert content["policy"]["speed_up_high"] == policy.speed_up_high
    assert content["search"]["speed_up"] == pytest.approx(speed_up)
    assert content["search"]["cost_bsp_multiples"] > 2


def test_the_first_protocol_alone_has_a_reason_and_no_speed_up_to_be_sure_of(url: str) -> None:
    policy = found(url, knee_percent=100.0).policy
    assert (policy.switch_percent, policy.reason) == (100, "saves no time")
    assert (policy.speed_up, policy.speed_up_low, policy.speed_up_high) == (1, 1, 1)
