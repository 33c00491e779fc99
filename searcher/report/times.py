"""How long trainings with each switch point take, whole and to the target; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncswitch.searcher.report.data import MeanSeconds, ReportData, mean_seconds
from syncswitch.searcher.results.speed_up import SpeedUp, speed_ups
from syncswitch.storage.metrics import time_to_accuracy_seconds


@dataclass(frozen=True, slots=True)
class SwitchPointTimes:
    """How long trainings with one switch point take.

    Attributes:
        seconds: Of whole trainings; None where no time is known.
        speed_up: Against the first protocol alone.
        waits: Seconds until a test is at the target, of each run with such a test.
        runs: With a curve.
    """

    candidate_percent: float
    seconds: MeanSeconds | None
    speed_up: SpeedUp | None
    waits: tuple[float, ...]
    runs: int

    @property
    def to_target(self) -> MeanSeconds | None:
        """Mean of the waits."""
        return mean_seconds(self.waits)


def switch_point_times(data: ReportData) -> tuple[SwitchPointTimes, ...]:
    """Of all compared runs, the longest first protocol first."""
    sound = [run for run in data.compared if run.is_sound]
    gains = speed_ups(
        data.identity, [(run.trial.candidate_percent or 0.0, run.trial) for run in sound]
    )
    return tuple(
        _times(data, one.candidate_percent, gains.get(one.candidate_percent))
        for one in data.switch_points
    )


def _times(data: ReportData, percent: float, speed_up: SpeedUp | None) -> SwitchPointTimes:
    curves = [run.whole.evaluations for run in data.at(percent) if run.whole is not None]
    target = math.inf if data.acceptance is None else data.acceptance.target_accuracy
    waits = [time_to_accuracy_seconds(curve, target) for curve in curves]
    return SwitchPointTimes(
        candidate_percent=percent,
        seconds=data.whole_seconds(percent),
        speed_up=speed_up,
        waits=tuple(wait for wait in waits if wait is not None),
        runs=sum(bool(curve) for curve in curves),
    )
