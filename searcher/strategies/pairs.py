"""Which pairs of protocols a search over several of them gives up, and when; pure.

All of them have the same first protocol. A pair is worth its runs as long as it may still turn out
to be faster than the best one so far, by more than nobody would notice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.metrics import mean_of

LEAST_GAIN = 0.02
"""A pair is preferred to the best before it where it takes so much less time, as a share."""

# A pair that is less likely to be preferred is given up.
_LEAST_CHANCE = 0.05


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a whole training with either protocol alone."""

    first_seconds: float
    second_seconds: float

    def at(self, percent: float) -> float:
        """Seconds of a training with its switch there."""
        share = percent / 100
        # So that neither time counts where its protocol does not run.
        first = share * self.first_seconds if share else 0.0
        return first + ((1 - share) * self.second_seconds if share < 1 else 0.0)


@dataclass(frozen=True, slots=True)
class Dropped:
    """Why a pair cannot win, or is not likely to.

    Attributes:
        runs: So many of its runs say so.
        percent: The earliest switch point that may still keep the accuracy.
        seconds: A training with that switch.
        chance: That the pair is preferred to the best so far; None where no switch point that may
            keep the accuracy is fast enough.
    """

    runs: int
    percent: float
    seconds: float
    chance: float | None = None


def is_preferred(seconds: float, best_seconds: float) -> bool:
    """Whether a pair with trainings of this length replaces the best one before it."""
    return seconds < (1 - LEAST_GAIN) * best_seconds


def pace_of(runs: Sequence[Observation]) -> Pace:
    """The pace of both protocols in some runs; NaN for one that none of them used."""
    costs = [run.cost for run in runs if run.cost is not None]
    first = mean_of(cost.first_seconds for cost in costs)
    second = mean_of(cost.second_seconds for cost in costs)
    return Pace(math.nan if first is None else first, math.nan if second is None else second)


def dropped(
    strategy: Strategy, runs: tuple[Observation, ...], best_seconds: float
) -> Dropped | None:
    """The first reason to give a pair up in the course of its search; None for none.

    Whoever looks later, when more runs are made, finds the same one.

    Args:
        strategy: Of the pair's search.
        runs: Those that it needed, in their order.
        best_seconds: A training with the best policy so far.
    """
    looks = (_dropped_after(strategy, runs[:end], best_seconds) for end in range(1, len(runs) + 1))
    return next((found for found in looks if found is not None), None)


# Whoever waits asks again and again, and every look begins with the first run.
@functools.lru_cache(maxsize=1_000)
def _dropped_after(
    strategy: Strategy, runs: tuple[Observation, ...], best_seconds: float
) -> Dropped | None:
    pace = pace_of(runs)
    if math.isnan(pace.first_seconds + pace.second_seconds):
        return None
    rejected = strategy.progress(runs).lower_percent
    grid = strategy.grid()
    possible = [percent for percent in grid if percent > rejected] or [grid[-1]]
    fastest = min(possible, key=pace.at)
    faster = [percent for percent in possible if is_preferred(pace.at(percent), best_seconds)]
    if not faster:
        return Dropped(len(runs), fastest, pace.at(fastest))
    answers = strategy.answers(runs)
    chance = math.fsum(answers.get(percent, 0.0) for percent in faster)
    if answers and chance < _LEAST_CHANCE:
        return Dropped(len(runs), fastest, pace.at(fastest), chance)
    return None
