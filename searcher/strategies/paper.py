"""The paper's strategy: a binary search with a fixed number of runs at each switch point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.strategies.base import Observation, mean_accuracy
from syncswitch.searcher.strategies.halving import ROUNDING, HalvingStrategy

__all__ = ["PaperStrategy"]


@dataclass(frozen=True, slots=True)
class PaperStrategy(HalvingStrategy):
    """Binary search for the earliest acceptable switch (Sync-Switch, ICDCS 2021, Algorithm 1).

    The paper's pseudo-code leaves some points open, which are settled here: the sum of accuracies
    starts anew at each switch point, and the answer is the lowest accepted switch point. A switch
    point is rejected by one diverged run, whatever the mean, so its remaining runs are not made.

    Attributes:
        two_sided: Accept only within [A - beta, A + beta], as printed in the paper, which rejects
            a candidate that is better than the baseline. Default: at least A - beta.
    """

    two_sided: bool = False

    @property
    def name(self) -> str:
        """What policies and studies call this strategy."""
        return "paper-two-sided" if self.two_sided else "paper"

    @property
    def repeats(self) -> int:
        """R."""
        return self.runs

    def least_runs_at(self, percent: float) -> int:
        """All of them."""
        return self.runs_at(percent)

    def verdict(self, reached: Sequence[Sequence[Observation]], target: float) -> bool | None:
        """Compares the mean of R runs."""
        candidate = reached[-1]
        if any(run.diverged for run in candidate):
            return False
        if len(candidate) < self.runs:
            return None
        gain = mean_accuracy(candidate) - target
        margin = self.threshold + ROUNDING
        return -margin <= gain <= margin if self.two_sided else -margin <= gain
