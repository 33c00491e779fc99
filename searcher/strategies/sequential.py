"""A plain sequential test on top of the paper's search: as many runs as a candidate needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.strategies.base import Observation, mean_accuracy
from syncswitch.searcher.strategies.halving import ROUNDING, HalvingStrategy

__all__ = ["SequentialStrategy"]

# The noise is taken to be beta / 2 until runs say otherwise, which weighs as much as 4 of them.
_PRIOR_DEGREES = 4
# An error in A is in every comparison, but a run of the baseline is dear. On generated jobs 4 are
# the fewest with which the answers are about as good as the paper's with 5 runs everywhere: 2 save
# 8 % of the cost, and one answer in twenty is worse for it.
_BASELINE_RUNS = 4


@dataclass(frozen=True, slots=True)
class SequentialStrategy(HalvingStrategy):
    """The paper's binary search, with no more runs of a candidate than it needs.

    They end as soon as their mean is z standard errors from A - beta, at the latest after R, and
    then by the mean alone, as the paper. The noise is estimated over all switch points reached. A
    candidate is rejected by one diverged run.

    Attributes:
        baseline_runs: How many runs measure A; None for 4, or R where that is less.
        target_runs: How many runs stand behind `target_accuracy`: so sure is it.
        standard_errors: z.
    """

    target_runs: int = 5
    standard_errors: float = 1.7

    @property
    def name(self) -> str:
        """What policies and studies call this strategy."""
        return "sequential"

    @property
    def usual_baseline_runs(self) -> int:
        """Fewer than the paper's."""
        return min(_BASELINE_RUNS, self.runs)

    def least_runs_at(self, percent: float) -> int:
        """One run of a candidate may do."""
        return self.runs_at(percent) if percent == self.highest_percent else 1

    def verdict(self, reached: Sequence[Sequence[Observation]], target: float) -> bool | None:
        """Tests whether the mean so far is clearly on one side of A - beta."""
        candidate = reached[-1]
        if not candidate:
            return None
        if any(run.diverged for run in candidate):
            return False
        margin = mean_accuracy(candidate) - (target - self.threshold)
        baseline_runs = self.target_runs if self.target_accuracy is not None else len(reached[0])
        error = self._noise(reached) * math.sqrt(1 / len(candidate) + 1 / baseline_runs)
        if len(candidate) < self.runs and abs(margin) <= self.standard_errors * error:
            return None
        return margin >= -ROUNDING

    def _noise(self, reached: Sequence[Sequence[Observation]]) -> float:
        """Standard deviation of a run, pooled over the switch points."""
        squares, degrees = _PRIOR_DEGREES * (self.threshold / 2) ** 2, _PRIOR_DEGREES
        for switch_point in reached:
            runs = [run for run in switch_point if not run.diverged]
            if runs:
                mean = mean_accuracy(runs)
                squares += math.fsum((run.accuracy - mean) ** 2 for run in runs)
                degrees += len(runs) - 1
        return math.sqrt(squares / degrees)
