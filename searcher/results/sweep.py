"""What a sweep over switch points measured, all against one target; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.results.speed_up import SpeedUp, measured_speed_up
from syncswitch.searcher.results.transfer import EvaluatedSwitchPoint
from syncswitch.searcher.strategies.baseline import ROUNDING
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity

_USUAL_REFERENCE = "bsp"


@dataclass(frozen=True, slots=True)
class SweptJob:
    """One job of a sweep under one set of conditions.

    Attributes:
        study: Name of the study that holds the runs made for this.
        new_runs: How many that are.
        switch_points: In the order in which they were asked for.
        reference: What the user called the workload, with the fields of a variant.
    """

    identity: WorkloadIdentity
    conditions: RunConditions
    study: str
    new_runs: int
    switch_points: tuple[EvaluatedSwitchPoint, ...]
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Jobs on clusters of one size, compared with one target.

    Attributes:
        reference_percent: At this switch point the first of the jobs trains with one protocol
            alone, which says what the accuracy is to be, and how long a training usually takes.
        threshold: beta, the accuracy that may be lost.
        given_target: A, where nobody has to measure it.
    """

    jobs: tuple[SweptJob, ...]
    reference_percent: float
    threshold: float
    given_target: float | None = None

    @property
    def target_accuracy(self) -> float | None:
        """A; None where nobody gave it, and all runs of the reference diverged."""
        if self.given_target is not None:
            return self.given_target
        points = (one for one in self.jobs[0].switch_points)
        return next(
            (one.mean_accuracy for one in points if one.switch_percent == self.reference_percent),
            None,
        )

    def kept_runs(self, switch_point: EvaluatedSwitchPoint) -> int | None:
        """Runs that lose at most the threshold against the target; None without one."""
        target = self.target_accuracy
        if target is None:
            return None
        least = target - self.threshold - ROUNDING
        return sum(accuracy >= least for accuracy in switch_point.accuracies)

    def speed_up(self, job: int, percent: float) -> SpeedUp | None:
        """Times as fast as the reference; None where all runs of either diverged, or none ran."""
        seconds = {
            (number, point.switch_percent): point.seconds
            for number, swept in enumerate(self.jobs)
            for point in swept.switch_points
        }
        return measured_speed_up(seconds, (job, percent), (0, self.reference_percent))


def with_reference(
    pairs: Sequence[tuple[str, str]],
) -> tuple[tuple[tuple[str, str], ...], float]:
    """What all switch points of these pairs of protocols are compared with: BSP alone.

    Returns:
        The pairs, each once, one with BSP in front; and the switch point at which that one is BSP
        alone. Where no pair has BSP, its first protocol alone.
    """
    different = list(dict.fromkeys(pairs))
    first = next((pair for pair in different if _USUAL_REFERENCE in pair), different[0])
    different.remove(first)
    return (first, *different), 0.0 if first[1] == _USUAL_REFERENCE else 100.0
