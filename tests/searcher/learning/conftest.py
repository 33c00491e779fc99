"""A job whose switch points before 25 % fail, and its trainings one after the other."""

from __future__ import annotations

from syncswitch.searcher.learning.used_job import lessons_of
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.observation import Observation, TrialCost

TARGET = 0.9
SECOND = 0.4
STRATEGY = AdaptiveStrategy(settings=4, threshold=0.01, share_prefix=False, early_stop=False)
GOOD_FROM_PERCENT = 25.0


def use(percent: float, number: int, *, fails: bool = False) -> list[Observation]:
    """What a guarded training shows; its accuracy swings by two thousandths."""
    share = percent / 100
    trained = Observation(
        percent,
        TARGET + 0.002 * (-1) ** number,
        cost=TrialCost(
            share + (1 - share) * SECOND + fails * (1 - share),
            1.0 if share else None,
            SECOND if share < 1 else None,
        ),
        alarmed=fails,
    )
    return lessons_of(trained, number, seed=number)
