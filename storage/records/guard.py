"""The knowledge of a guard about a job, and its actions in a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from syncswitch.storage.records.flat import nested
from syncswitch.storage.records.goal import Goal, deviation_of
from syncswitch.storage.records.job import EARLY_RULES, protocol_text
from syncswitch.storage.records.limits import INDEX, NOT_NEGATIVE, WORKER_STEP

_MOST_HALVINGS = 6  # as in a usual search
_SAFE_PERCENT = 25.0

SURE_OF_INFERRED = 0.7
"""Standard deviations by which a target may be too high that runs with a switch tell of as well.

Guards send back what more likely lost too much than not.
"""

LOST = 3.0
"""Thresholds that count as a loss in a run's own evaluations, where no target is measured."""

# What a guard is worth, as searches expect: whoever changes its rule measures these again.
ALARMED_AFTER = 0.6
"""Share of the second protocol's steps after which a guard sees that a switch failed."""

NOTICED_BY_ITSELF = 0.8
"""Share of the runs which lose `LOST` or more that their own evaluations show; else none."""

FALSE_ALARMS = 0.02
"""Share of good runs that their own evaluations send back."""


@dataclass(frozen=True, slots=True)
class BandPoint:
    """Tests of the first protocol alone after the same worker-steps."""

    worker_step: Annotated[int, "The number of worker-steps.", WORKER_STEP]
    accuracy: Annotated[float, "Mean accuracy of the evaluations."]
    deviation: Annotated[
        float,
        "Standard deviation of an evaluation between the runs; 0 for a single run.",
        NOT_NEGATIVE,
    ]


@dataclass(frozen=True, slots=True)
class Band:
    """Results of the first protocol alone, which a guarded run is compared with."""

    target_accuracy: Annotated[
        float | None,
        "A, the accuracy to reach; None until it is measured, then `runs` is 0 and `curve` "
        "empty, and a run is compared with its own evaluations.",
    ]
    threshold: Annotated[
        float, "beta, the accuracy that may be lost; 0 until it is measured.", NOT_NEGATIVE
    ]
    runs: Annotated[int, "Number of runs that the curve rests on.", INDEX] = 0
    curve: Annotated[
        tuple[BandPoint, ...],
        "Points in ascending order of worker-steps; empty if no curve is known.",
    ] = ()

    @property
    def goal(self) -> Goal | None:
        """The target, and how much is known of it; None until it is measured."""
        if self.target_accuracy is None:
            return None
        measured = (self.curve[-1].deviation ** 2, self.runs) if self.curve else (0.0, 1)
        deviation = deviation_of(self.threshold, *measured)
        return Goal(self.target_accuracy, self.threshold, self.runs, deviation)

    @property
    def margin(self) -> float:
        """How much more than the threshold a run may lose; see `Goal.margin`."""
        return 0.0 if self.goal is None else self.goal.margin

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Band:
        """Rebuilds a band of either kind from its JSON values."""
        kind = BelievedBand if "error" in values else cls
        curve = tuple(nested(BandPoint, point) for point in values["curve"])
        return nested(kind, {**values, "curve": curve})


@dataclass(frozen=True, slots=True)
class BelievedBand(Band):
    """The band of one run, of which more is known than a policy has."""

    error: Annotated[float, "How much more than the threshold the run may lose."] = 0.0

    @property
    def margin(self) -> float:
        """How much more than the threshold the run may lose."""
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
            evaluation after the switch; None without one.
        second_protocol: What it switched to; None in what older versions wrote: that of the run.
    """

    switch_percent: float
    alarm: str
    worker_step: int
    elapsed_seconds: float
    lost_seconds: float
    accuracy: float | None = None
    second_protocol: str | None = None

    def place(self, second_protocol: str) -> str:
        """Where it was, in a run that ended with this second protocol: `6.25 % (to ASP)`."""
        own = self.second_protocol or second_protocol
        to = "" if own == second_protocol else f" (to {protocol_text(own)})"
        return f"{self.switch_percent:g} %{to}"


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

    They are the halvings. With a rule that bears an early switch 25 % is the only one: hardly
    any job loses there, and a run that fails at one switch after the other fails for its seed.
    """
    halvings = (50.0 / 2**number for number in range(_MOST_HALVINGS))
    again = (_SAFE_PERCENT,) if momentum in EARLY_RULES else halvings
    return tuple(sorted(percent for percent in again if percent > switch_percent))
