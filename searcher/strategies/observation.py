"""Completed runs as strategies see them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

AccuracyRange = tuple[float | None, float | None]
"""Least and largest possible accuracy; None for no limit."""

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


def possible_accuracy(accuracy: float, limits: AccuracyRange) -> float:
    """Returns the accuracy within the limits that is closest to this one."""
    least, largest = limits
    accuracy = accuracy if least is None else max(least, accuracy)
    return accuracy if largest is None else min(largest, accuracy)
