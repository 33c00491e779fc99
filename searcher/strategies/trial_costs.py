"""Estimates what the next run will cost from what the runs so far cost."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.metrics import mean_of

# A second protocol of which nothing is measured yet is taken to need this part of the time.
_EXPECTED_RATIO = 0.3
# No run is free: something has to be started, and its result awaited.
_LEAST_COST = 0.02


@dataclass(frozen=True)
class TrialCosts:
    """Costs in trainings with the first protocol alone.

    Attributes:
        highest_percent: Stands for the first protocol alone.
        ratio: Time of a training with the second protocol alone.
        end: Share of W at which runs end in the mean, as some are stopped.
        paid: What the completed runs cost together.
        prefixes: Share of W up to which a replicate has checkpoints; empty where none are shared.
    """

    highest_percent: float
    ratio: float
    end: float
    paid: float
    prefixes: dict[int, float]

    @classmethod
    def of(
        cls, runs: Sequence[Observation], highest_percent: float, share_prefix: bool
    ) -> TrialCosts:
        """Learns from completed runs."""
        costs = [run.cost for run in runs if run.cost is not None]
        first = mean_of(cost.first_seconds for cost in costs)
        second = mean_of(cost.second_seconds for cost in costs)
        prefixes: dict[int, float] = defaultdict(float)
        if share_prefix:
            for run in runs:
                reached = run.cost.reached_percent / 100 if run.cost else 1.0
                own = min(run.switch_percent / highest_percent, reached)
                prefixes[run.replicate] = max(prefixes[run.replicate], own)
        paid = math.fsum(cost.paid_seconds for cost in costs)
        return cls(
            highest_percent=highest_percent,
            ratio=second / first if first and second else _EXPECTED_RATIO,
            end=(mean_of(cost.reached_percent for cost in costs) or 100.0) / 100.0,
            paid=paid / first if first else float(len(runs)),
            prefixes=dict(prefixes),
        )

    def next(self, percent: float, replicate: int) -> float:
        """The cost of a run at a switch point, in this replicate."""
        share = percent / self.highest_percent
        first = max(0.0, min(share, self.end) - self.prefixes.get(replicate, 0.0))
        return max(_LEAST_COST, first + max(0.0, self.end - share) * self.ratio)

    def until(self, percent: float, share: float) -> float:
        """The cost of a run at a switch point up to a share of W, if it inherits nothing."""
        switch = percent / self.highest_percent
        return min(switch, share) + max(0.0, share - switch) * self.ratio
