"""Times and phases of a run; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from syncswitch.storage.records.trial import Evaluation, PhaseRecord


class RunTimes:
    """Training time of a run by its worker-steps.

    It is linear between what is known: the start, the evaluations and the ends of the phases.
    Before and after the run it stands still.
    """

    def __init__(
        self,
        phases: Iterable[PhaseRecord],
        evaluations: Iterable[Evaluation],
        training_seconds: float,
        worker_steps: int,
    ) -> None:
        known = {evaluation.worker_step: evaluation.elapsed_seconds for evaluation in evaluations}
        seconds = 0.0
        for phase in phases:
            seconds += phase.seconds
            known[phase.end_worker_step] = seconds
        known = {step: known[step] for step in sorted(known) if 0 < step < worker_steps}
        known = {0: 0.0, **known, worker_steps: training_seconds}
        self._worker_steps = np.array(list(known), float)
        # Two measurements of nearly the same moment may contradict each other a little.
        times = np.maximum.accumulate(list(known.values()))
        self._seconds = np.minimum(times, training_seconds)

    def seconds_at(self, worker_step: float) -> float:
        """Training time from the run's start."""
        return float(np.interp(worker_step, self._worker_steps, self._seconds))


def cut_phases(
    phases: Iterable[PhaseRecord], start_worker_step: int, end_worker_step: int, clock: RunTimes
) -> tuple[PhaseRecord, ...]:
    """The part of a run between two worker-steps; the staleness is that of the whole phases."""
    found = []
    for phase in phases:
        start = max(phase.start_worker_step, start_worker_step)
        end = min(phase.end_worker_step, end_worker_step)
        if (start, end) == (phase.start_worker_step, phase.end_worker_step):
            found.append(phase)
        elif start < end:
            seconds = clock.seconds_at(end) - clock.seconds_at(start)
            found.append(
                replace(phase, start_worker_step=start, end_worker_step=end, seconds=seconds)
            )
    return tuple(found)


def merge_phases(phases: Sequence[PhaseRecord]) -> tuple[PhaseRecord, ...]:
    """The same phases, where neighbours of one protocol are one phase."""
    found: list[PhaseRecord] = []
    for phase in phases:
        if found and found[-1].protocol == phase.protocol:
            phase = _merged(found.pop(), phase)
        found.append(phase)
    return tuple(found)


def _merged(first: PhaseRecord, second: PhaseRecord) -> PhaseRecord:
    means = (first.mean_staleness, second.mean_staleness)
    mean = None
    if means[0] is not None and means[1] is not None:
        steps = [one.end_worker_step - one.start_worker_step for one in (first, second)]
        mean = (means[0] * steps[0] + means[1] * steps[1]) / max(1, sum(steps))
    most = (first.max_staleness, second.max_staleness)
    return replace(
        first,
        end_worker_step=second.end_worker_step,
        seconds=first.seconds + second.seconds,
        mean_staleness=mean,
        max_staleness=None if most[0] is None or most[1] is None else max(most[0], most[1]),
    )
