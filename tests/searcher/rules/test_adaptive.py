from __future__ import annotations

from hypothesis import strategies as st

from syncswitch.searcher.rules.adaptive import AdaptiveRule
from tests.searcher.rules.rule_contract import RuleContract


class TestAdaptiveRule(RuleContract):
    kind = AdaptiveRule
    options = {
        "target_runs": st.sampled_from([1, 5, 30]),
        "least_runs": st.integers(1, 3),
        "budget": st.none() | st.sampled_from([0.5, 2.0, 4.0]),
        "related": st.sampled_from([(), (25.0,), (6.25, 50.0)]),
    }

    def moved(self, rule, lowest, highest):
        from dataclasses import replace

        return replace(
            rule.between(lowest, highest), related=tuple(highest * r / 100 for r in rule.related)
        )
