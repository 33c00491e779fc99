"""What a guard knows of a job, and what it did in a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


_SCATTER = 0.5
"""Standard deviation of the accuracy that a job converges to, in thresholds: a usual one."""


def target_error(threshold: float, runs: int) -> float:
    """By how much a target, the mean of few runs, may be too high; 0 of one that was given.

    Held against a lucky run, every tenth good run would be sent back.
    """
    return _SCATTER * threshold / math.sqrt(runs) if runs else 0.0


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
    """What the first protocol alone has shown, and what a run is held against.

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
class GuardOutcome:
    """How a guarded run went.

    Attributes:
        alarm: Why it went back to its switch, as a clause; None where it did not.
        worker_step: Worker-steps done at the alarm; None without one.
        lost_seconds: Training time from the switch to the alarm, which was for nothing.
    """

    alarm: str | None = None
    worker_step: int | None = None
    lost_seconds: float = 0.0

    @property
    def state(self) -> str:
        """`quiet`, or `alarmed`."""
        return "quiet" if self.alarm is None else "alarmed"
