"""Completed runs as strategies see them, and what the next one will cost, judging by theirs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncswitch.storage.metrics import mean_of
from syncswitch.storage.records.metric import AccuracyRange

SHARES: AccuracyRange = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class TrialCost:
    """The cost of a run, and the pace from which the cost of another follows.

    Attributes:
        paid_seconds: Training time of the run itself, without what it inherited.
        first_seconds: Time of a whole training with the first protocol at the pace of this run;
            None if the run made no worker-step of its own with it.
        second_seconds: Time of a whole training with the second protocol, likewise.
        reached_percent: Percent of W that the run did before it ended.
    """

    paid_seconds: float
    first_seconds: float | None
    second_seconds: float | None
    reached_percent: float = 100.0


@dataclass(frozen=True, slots=True)
class Observation:
    """One completed training run, as a strategy sees it.

    Attributes:
        switch_percent: Percent of W worker-steps in the first protocol.
        accuracy: Converged accuracy.
        diverged: Whether the training diverged.
        trial_number: Position in the order in which runs were begun.
        replicate: Runs of one replicate have the same seed, and may share the start of the
            training.
        stopped_early: Whether the run was not made to its end.
        plateau_accuracy: Accuracy that a run made to its end would have had if it had been stopped;
            None if it would not have been.
        cost: Cost of the run; None if unknown.
        alarmed: Whether a guard ended it because it lost more than beta. How much is unknown, and
            the accuracy is not that of this switch point.
    """

    switch_percent: float
    accuracy: float
    diverged: bool = False
    trial_number: int = 0
    replicate: int = 0
    stopped_early: bool = False
    plateau_accuracy: float | None = None
    cost: TrialCost | None = None
    alarmed: bool = False

    @property
    def is_recorded(self) -> bool:
        """Whether it was made for something else, at no cost and without a way to stop it."""
        return self.cost is not None and not self.cost.paid_seconds


def mean_accuracy(runs: Sequence[Observation]) -> float:
    """Returns the mean accuracy of at least one run."""
    return math.fsum(run.accuracy for run in runs) / len(runs)


def width_of(limits: AccuracyRange) -> float | None:
    """Returns by how much two accuracies within the limits may differ; None for no limit."""
    least, largest = limits
    return None if least is None or largest is None else largest - least


# Share of the time that a second protocol is assumed to need before it is measured.
_EXPECTED_RATIO = 0.3
# No run is free: something has to be started, and its result awaited.
_LEAST_COST = 0.02


@dataclass(frozen=True)
class TrialCosts:
    """Costs in trainings with the first protocol alone.

    Attributes:
        ratio: Time of a training with the second protocol alone.
        end: Mean share of W at which runs end, as some are stopped.
        paid: Cost of all completed runs.
        prefixes: Share of W up to which a replicate has checkpoints; empty if none are shared.
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
        costs = [run.cost for run in runs if run.cost is not None]
        first, second = _paces(runs)
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
        share = percent / self.highest_percent
        first = max(0.0, min(share, self.end) - self.prefixes.get(replicate, 0.0))
        return max(_LEAST_COST, first + max(0.0, self.end - share) * self.ratio)

    def until(self, percent: float, share: float) -> float:
        """Returns the cost of a run at a switch point up to a share of W, without shared parts."""
        switch = percent / self.highest_percent
        return min(switch, share) + max(0.0, share - switch) * self.ratio


def _paces(runs: Iterable[Observation]) -> tuple[float | None, float | None]:
    """Returns the time of a whole training with each protocol; None where nothing was measured.

    The first protocol's is that of runs with it alone, where there are some. What a first phase
    took longer than at their pace is the start of a run, which no switch makes shorter: it counts
    with the second protocol, so that a switch is not believed to save what it did not.
    """
    costs = [(run.switch_percent / 100, run.cost) for run in runs if run.cost is not None]
    alone = mean_of(cost.first_seconds for _, cost in costs if cost.second_seconds is None)
    first = alone or _weighted_mean((cost.first_seconds, share) for share, cost in costs)[0]
    switched = [(share, cost) for share, cost in costs if cost.second_seconds is not None]
    second, done = _weighted_mean(
        (cost.second_seconds, cost.reached_percent / 100 - share) for share, cost in switched
    )
    if alone is None or second is None:
        return first, second
    started = math.fsum(
        (cost.first_seconds - alone) * share
        for share, cost in switched
        if cost.first_seconds is not None
    )
    return first, second + max(0.0, started) / done


def _weighted_mean(values: Iterable[tuple[float | None, float]]) -> tuple[float | None, float]:
    """Returns the mean of the known values, None without any, and the sum of their weights."""
    pairs = [(value, weight) for value, weight in values if value is not None and weight > 0]
    total = math.fsum(weight for _, weight in pairs)
    return (math.fsum(value * weight for value, weight in pairs) / total if total else None), total
