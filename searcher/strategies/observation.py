"""What a strategy is told of a completed trial."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncswitch.storage.errors import UserError

AccuracyRange = tuple[float | None, float | None]
"""Least and largest accuracy that there can be; None for no limit."""

SHARES: AccuracyRange = (0.0, 1.0)

ROUNDING = 1e-9
"""Means of accuracies such as 0.95 are not exact in binary; a tie must not depend on that."""

_DIVERGED_BASELINES = 2


@dataclass(frozen=True, slots=True)
class TrialCost:
    """What a run cost, and what another one would.

    Attributes:
        paid_seconds: Training time of the run itself, without what it inherited.
        first_seconds: A whole training with the first protocol at the pace of this run; None
            where it used that protocol for no worker-step of its own.
        second_seconds: The same of the second protocol.
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
    """The accuracy within limits that is next to this one."""
    least, largest = limits
    accuracy = accuracy if least is None else max(least, accuracy)
    return accuracy if largest is None else min(largest, accuracy)


def check_baseline(runs: Iterable[Observation]) -> None:
    """Raises UserError where several runs of the first protocol diverged, and most of them.

    One may be bad luck, and is made again with another seed.
    """
    runs = list(runs)
    diverged = sum(run.diverged for run in runs)
    if diverged >= _DIVERGED_BASELINES and 2 * diverged > len(runs):
        raise UserError(
            f"{diverged} of {len(runs)} runs of the first protocol alone diverged, so there is no"
            " accuracy to compare with: the learning rate is too high for this number of workers;"
            " lower it in the workload, or use fewer --workers"
        )
