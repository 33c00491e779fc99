"""A completed trial as strategies see it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

AccuracyRange = tuple[float | None, float | None]
"""Least and largest accuracy that there can be; None for no limit."""

SHARES: AccuracyRange = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class TrialCost:
    """The cost of a run, and what another one would cost.

    Attributes:
        paid_seconds: Training time of the run itself, without what it inherited.
        first_seconds: A whole training with the first protocol at the pace of this run; None
            where it used that protocol for no worker-step of its own.
        second_seconds: A whole training with the second protocol at the pace of this run, likewise.
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
        diverged: Whether the training blew up.
        trial_number: Says which runs of a switch point were first.
        replicate: Runs of one replicate have the same seed, and may share the start of the
            training.
        stopped_early: The run was not made to its end.
        plateau_accuracy: Of a run that was: what it would have measured had it been stopped; None
            where it would not have been.
        cost: What the run cost; None where nobody says.
        alarmed: A guard ended what came after the switch: it lost more than beta, nobody knows how
            much, and the accuracy is none of this switch point.
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
        """Whether it was made for something else, at no cost, and nobody could stop it."""
        return self.cost is not None and not self.cost.paid_seconds


def mean_accuracy(runs: Sequence[Observation]) -> float:
    """Mean accuracy of at least one run."""
    return math.fsum(run.accuracy for run in runs) / len(runs)


def possible_accuracy(accuracy: float, limits: AccuracyRange) -> float:
    """The accuracy within limits that is closest to this one."""
    least, largest = limits
    accuracy = accuracy if least is None else max(least, accuracy)
    return accuracy if largest is None else min(largest, accuracy)
