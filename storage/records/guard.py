"""The knowledge of a guard about a job, and its actions in a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncswitch.storage.records.job import OWN_MOMENTUM

_MOST_HALVINGS = 6  # as in a usual search
_SAFE_PERCENT = 25.0

_LUCK = 1.0
"""Thresholds by which one run ends above the mean of all at most, with 95 % confidence.

Runs scatter by half a threshold, give or take a factor of exp(0.5) from job to job, as the
searcher's prior has it; 2.01 times that half is the 95th percentile.
"""


def target_error(threshold: float, runs: int) -> float:
    """Returns how much too high a target may be, the mean of few runs, with 95 % confidence.

    It is 0 for a given target. Compared with a lucky run, many a good switch would be sent back at
    its end, where that costs most.
    """
    return _LUCK * threshold / math.sqrt(runs) if runs else 0.0


@dataclass(frozen=True, slots=True)
class BandPoint:
    """Tests of the first protocol alone after the same worker-steps.

    Attributes:
        worker_step: The number of worker-steps.
        accuracy: Mean accuracy of the tests.
        deviation: Standard deviation of a test between the runs; 0 for a single run.
    """

    worker_step: int
    accuracy: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Band:
    """Results of the first protocol alone, which a guarded run is compared with.

    Attributes:
        target_accuracy: A, the accuracy to reach; None as long as nobody has measured it, then
            `runs` is 0 and `curve` empty, and a run is compared with its own tests.
        threshold: beta, the accuracy that may be lost; 0 as long as nobody has measured it.
        runs: Number of runs that the curve rests on.
        curve: Points in ascending order of worker-steps; empty if no curve is known.
    """

    target_accuracy: float | None
    threshold: float
    runs: int = 0
    curve: tuple[BandPoint, ...] = ()

    @property
    def target_error(self) -> float:
        """How much too high the target may be."""
        return target_error(self.threshold, self.runs)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Band:
        """Rebuilds a band of either kind from its JSON values."""
        kind = BelievedBand if "error" in values else cls
        return kind(**{**values, "curve": tuple(BandPoint(**point) for point in values["curve"])})


@dataclass(frozen=True, slots=True)
class BelievedBand(Band):
    """A band whose target other runs tell of as well, for one run; policies have the measured one.

    Attributes:
        error: How much too high the target may be.
    """

    error: float = 0.0

    @property
    def target_error(self) -> float:
        """How much too high the target may be."""
        return self.error


@dataclass(frozen=True, slots=True)
class FailedSwitch:
    """A switch of a guarded run that failed: the training after it was in vain.

    Attributes:
        switch_percent: Percent of W at which it was.
        alarm: The reason of the alarm, as a clause.
        worker_step: Worker-steps done at the alarm.
        elapsed_seconds: Training time at the alarm.
        lost_seconds: Training time from the switch to the alarm.
        accuracy: The converged accuracy if it trained to its end, else the accuracy of the last
            test after the switch; None without a test.
    """

    switch_percent: float
    alarm: str
    worker_step: int
    elapsed_seconds: float
    lost_seconds: float
    accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class GuardOutcome:
    """The outcome of a guarded run.

    Attributes:
        held_percent: The switch with which the run came to its end; 100 for the first protocol
            alone, None if the run was ended at its alarm.
        failed: The switches that failed before, in their order.
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


def later_switch_points(switch_percent: float, momentum: str | None = None) -> tuple[float, ...]:
    """Returns the switch points later than a switch at which a run that fails switches again.

    They are the halvings. With `own` as the momentum after the switch 25 % is the only one: hardly
    any job loses there, and a run that fails at one switch after the other fails for its seed.
    """
    halvings = (50.0 / 2**number for number in range(_MOST_HALVINGS))
    again = (_SAFE_PERCENT,) if momentum == OWN_MOMENTUM else halvings
    return tuple(sorted(percent for percent in again if percent > switch_percent))
