"""A search decided by a metric equals the one decided by its negative, in any unit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided, NextTrial, Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.records.metric import Metric

ERROR = Metric("error", "min", "m", 0.0, None)


def path(strategy: Strategy, seed: int, metric: Metric, scale: float) -> list[float]:
    """Returns the switch points of the runs, and then the answer."""
    knee = (10.0, 30.0, 60.0)[seed % 3]
    seen: list[Observation] = []
    while True:
        decision = strategy.decide(seen)
        if isinstance(decision, Decided):
            return [*(run.switch_percent for run in seen), decision.switch_percent]
        assert isinstance(decision, NextTrial)
        percent = decision.switch_percent
        noise = np.random.default_rng([seed, len(seen)]).normal(scale=0.003)
        error = scale * (0.1 + noise + (0.05 if percent < knee else 0.0))
        value = error if metric.is_less_better else 1 - error
        seen.append(
            Observation(
                percent,
                metric.accuracy(value),
                trial_number=len(seen),
                replicate=sum(run.switch_percent == percent for run in seen),
            )
        )


@pytest.mark.parametrize(
    "strategy",
    [AdaptiveStrategy(), PaperStrategy(runs=2)],
    ids=["adaptive", "paper"],
)
@pytest.mark.parametrize("seed", range(3))
def test_an_error_is_searched_as_the_accuracy_that_it_leaves(strategy: Strategy, seed: int) -> None:
    usual = path(strategy, seed, Metric(), 1.0)
    assert path(strategy.measured_by(ERROR), seed, ERROR, 1.0) == usual
    in_metres = replace(strategy.measured_by(ERROR), threshold=1000 * strategy.threshold)
    assert path(in_metres, seed, ERROR, 1000.0) == usual
