"""What a guard knows about a job, and what it did in a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# As of a usual search.
_MOST_HALVINGS = 6


_LUCK = 1.0
"""Thresholds by which one run ends above the mean of all at most, with 95 % confidence.

Runs scatter by half a threshold, give or take a factor of exp(0.5) from job to job, as the
searcher's prior has it; 2.01 times that half is the 95th percentile.
"""


def target_error(threshold: float, runs: int) -> float:
    """Return how much too high a target may be that is the mean of few runs, with 95 % confidence.

    0 for a target that was given. Held against a lucky run, many a good switch would be sent back
    at its end, where that costs most.
    """
    return _LUCK * threshold / math.sqrt(runs) if runs else 0.0


@dataclass(frozen=True, slots=True)
class BandPoint:
    """Tests of the first protocol alone after the same worker-steps.

    Attributes:
        worker_step: After which they were made.
        accuracy: Their mean.
        deviation: Standard deviation of one test among runs, of the few that there are; 0 of one.
    """

    worker_step: int
    accuracy: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Band:
    """Results of the first protocol alone, which a guarded run is compared with.

    Attributes:
        target_accuracy: A.
        threshold: beta, the accuracy that may be lost.
        runs: So many made the curve.
        curve: In ascending order of worker-steps; empty where no curve is known.
    """

    target_accuracy: float
    threshold: float
    runs: int = 0
    curve: tuple[BandPoint, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Band:
        """The band of its JSON values."""
        return cls(**{**values, "curve": tuple(BandPoint(**point) for point in values["curve"])})


@dataclass(frozen=True, slots=True)
class FailedSwitch:
    """A switch of a guarded run that failed: what came after it was for nothing.

    Attributes:
        switch_percent: Where it was.
        alarm: Why it failed, as a clause.
        worker_step: Worker-steps done at the alarm.
        elapsed_seconds: Training time at the alarm.
        lost_seconds: Training time from the switch to the alarm.
        accuracy: What it converged to where it trained to its end, else that of the last test after
            the switch; None where there was none.
    """

    switch_percent: float
    alarm: str
    worker_step: int
    elapsed_seconds: float
    lost_seconds: float
    accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class GuardOutcome:
    """How a guarded run went.

    Attributes:
        held_percent: The switch with which it came to its end; 100 for the first protocol alone,
            None where it was ended at its alarm.
        failed: The switches that it went back to before, in their order.
    """

    held_percent: float | None
    failed: tuple[FailedSwitch, ...] = ()

    @property
    def state(self) -> str:
        """`quiet`, or `alarmed`."""
        return "alarmed" if self.failed else "quiet"

    @property
    def lost_seconds(self) -> float:
        """Training time that all failures cost together."""
        return math.fsum(one.lost_seconds for one in self.failed)


def later_switch_points(switch_percent: float) -> tuple[float, ...]:
    """The halvings of a job that are later than a switch: where a run that fails switches again."""
    halvings = (50.0 / 2**number for number in range(_MOST_HALVINGS))
    return tuple(sorted(percent for percent in halvings if percent > switch_percent))
