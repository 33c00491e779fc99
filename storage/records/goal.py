"""What a run is to reach: a target, how much of it may be lost, and how much more guards accept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from syncswitch.storage.records.limits import INDEX, NOT_NEGATIVE

_USUAL_DEVIATION, _USUAL_RUNS = 0.5, 2
"""Thresholds by which runs differ, as far as the searcher knows before any, and its weight in runs.

It is half a threshold, give or take a factor of exp(0.5), which says as much as two runs.
"""

_SURE = 2.0
"""Standard deviations of which 95 % are below, if few runs have measured one."""

ONE_IN_TWENTY = 1.645
"""Standard deviations that a normal value exceeds once in twenty times."""

_ROUNDING = 1e-9  # means of accuracies such as 0.95 are not exact in binary


@dataclass(frozen=True, slots=True)
class AllowedLoss:
    """How much accuracy a run may lose: beta, which is given, or measured in first runs."""

    COLUMNS: ClassVar[Mapping[str, str]] = {"runs": "threshold_runs"}

    threshold: Annotated[
        float,
        "beta, the accuracy that may be lost, in the unit of the metric; 0 if it has yet to be"
        " measured, in runs with the first protocol alone",
        NOT_NEGATIVE,
    ]
    runs: Annotated[
        int, "in how many first such runs the threshold is measured; 0 if it was given", INDEX
    ] = 0

    @property
    def is_known(self) -> bool:
        """False until the runs that measure it are made."""
        return self.threshold > 0

    @property
    def is_from_runs(self) -> bool:
        """Whether runs measure it, or have done so."""
        return self.runs > 0

    @property
    def parameter(self) -> str:
        """The parameter with which a user says it."""
        return "threshold_runs" if self.is_from_runs else "threshold"

    @property
    def stated(self) -> float:
        """The value of this parameter."""
        return self.runs or float(f"{self.threshold:g}")


def deviation_of(threshold: float, variance: float, runs: int) -> float:
    """Returns by how much runs of the first protocol alone differ, as a standard deviation.

    Few runs say little of it, so what is usual counts beside them.

    Args:
        threshold: beta.
        variance: That between the runs; any with less than two of them.
        runs: Number of runs.
    """
    freedom = max(0, runs - 1)
    usual = _USUAL_RUNS * (_USUAL_DEVIATION * threshold) ** 2
    return math.sqrt((usual + freedom * variance) / (_USUAL_RUNS + freedom))


@dataclass(frozen=True, slots=True)
class Goal:
    """What the first protocol alone reaches, and how much less will do.

    Attributes:
        accuracy: A, the mean of all runs of the first protocol alone so far, or as given.
        threshold: beta, the accuracy that may be lost; 0 until it is measured, in runs that are
            compared with nothing.
        runs: Number of runs that the target is the mean of; 0 if it was given.
        deviation: Standard deviation of a run, see `deviation_of`.
    """

    accuracy: float
    threshold: float
    runs: int = 0
    deviation: float = 0.0

    @classmethod
    def mean_of(
        cls, accuracies: Sequence[float], threshold: float, measured: int | None = None
    ) -> Goal:
        """The goal by at least one run.

        So many of them were `measured` one by one, where a known mean stands for several; None for
        all.
        """
        mean, runs = math.fsum(accuracies) / len(accuracies), len(accuracies)
        freedom = (runs if measured is None else measured) - 1
        variance = math.fsum((one - mean) ** 2 for one in accuracies) / max(1, freedom)
        return cls(mean, threshold, runs, deviation_of(threshold, variance, freedom + 1))

    @property
    def least_accuracy(self) -> float:
        """The lowest accuracy that is accepted."""
        return self.accuracy - self.threshold

    def is_kept(self, accuracy: float) -> bool:
        """Whether a run that ended with this accuracy lost no more than it may."""
        return not self.threshold or accuracy >= self.least_accuracy - _ROUNDING

    @property
    def margin(self) -> float:
        """How much more than the threshold a run may lose before a guard sends it back.

        The mean of few runs may be too high: compared with a lucky run, many a good switch would be
        sent back at its end, where that costs most. And one that lost no more than one in twenty of
        the first protocol's own do by chance need not have lost it to its switch.
        """
        if not self.runs:
            return 0.0
        return max(self.error, self.spread - self.threshold)

    @property
    def spread(self) -> float:
        """What one in twenty runs of the first protocol alone lose by chance, or more."""
        return ONE_IN_TWENTY * self.deviation * math.sqrt(1 + 1 / self.runs) if self.runs else 0.0

    @property
    def error(self) -> float:
        """How much too high the mean of few runs may be, with 95 % confidence; not a given one."""
        return _SURE * self.deviation / math.sqrt(self.runs)


def is_kept(goal: Goal | None, accuracy: float, *, diverged: bool) -> bool | None:
    """Returns whether a run reached its goal; None while no target is measured."""
    if diverged:
        return False
    return None if goal is None else goal.is_kept(accuracy)
