"""The measurements of a run, and the record that is made from them."""

from __future__ import annotations

import math
import socket
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any

from syncswitch.storage.metrics import converged_accuracy, is_converged
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.guard import GuardOutcome
from syncswitch.storage.records.trial import (
    Evaluation,
    PhaseRecord,
    RunEvent,
    TrialRecord,
    TrialSpec,
)
from syncswitch.trainers.job.schedule import last_boundary


def run_identity(spec: TrialSpec) -> dict[str, Any]:
    """Distinguishes a run from others with checkpoints in the same folder, as JSON."""
    identity, conditions = spec.identity, spec.conditions
    return {
        "job": identity.fingerprint,
        "protocols": identity.pair,
        "momentum after the switch": identity.momentum_after_switch,
        "switch at percent": spec.switch_percent,
        "seed": spec.seed,
        "online": conditions.online,
        "switch": conditions.switch_mechanism,
        "inject": "; ".join(conditions.injections) or None,
    }


@dataclass(frozen=True)
class Position:
    """The position of a run: at a checkpoint, or at a moment from which it can continue."""

    done: int = 0  # worker-steps, which is also the position in the data
    first_protocol_done: int = 0  # those of them before the switch
    elapsed_seconds: float = 0.0
    inherited_seconds: float = 0.0  # the part of it from the run that was forked
    switch_overhead_seconds: float = 0.0
    is_detour: bool = False  # an online policy has left the first protocol for now
    phases: tuple[PhaseRecord, ...] = ()  # without those before a fork
    protocol_before: str | None = None  # just before a fork; None for a run from the start
    next_test: int = 0  # the next that was not requested; perhaps done, which servers know first


def event_line(event: RunEvent, step_noun: str = "worker-step") -> str:
    """Describes an event, as in `lost at worker-step 1,200: worker 2: no answer`."""
    return f"{event.kind} at {step_noun} {event.worker_step:,}: {event.reason}"


def is_remarkable(event: RunEvent) -> bool:
    """Whether an event is more than the requested switch, the only `switched` with a duration.

    What is tried is said once something is chosen.
    """
    return event.kind != "tried" and (event.kind != "switched" or event.seconds is None)


def trial_record(
    spec: TrialSpec,
    started_at: datetime,
    end: Position,
    evaluations: Iterable[Evaluation],
    *,
    diverged: bool = False,
    stopped_early: bool = False,
    checkpoints: Mapping[float, Path] = MappingProxyType({}),
    events: Iterable[RunEvent] = (),
    guard: GuardOutcome | None = None,
    step_seconds: Mapping[str, float] = MappingProxyType({}),
) -> TrialRecord:
    """Makes the record of a run that has just ended on this machine; fields as in `TrialRecord`."""
    own, metric = tuple(evaluations), spec.identity.metric
    tests = (*spec.inherited_evaluations, *own)
    boundary = last_boundary(spec.identity.recipe.learning_rate_boundaries or ())
    return TrialRecord(
        spec=spec,
        worker_steps=end.done,
        evaluations=own,
        phases=end.phases,
        converged_accuracy=converged_accuracy(tests, metric.worst_accuracy),
        converged=not diverged and is_converged(tests, boundary, metric),
        diverged=diverged,
        stopped_early=stopped_early,
        training_seconds=end.elapsed_seconds,
        inherited_seconds=end.inherited_seconds,
        switch_overhead_seconds=end.switch_overhead_seconds,
        started_at=started_at,
        # The clock may have been set back meanwhile.
        ended_at=max(started_at, datetime.now(timezone.utc)),
        host=socket.gethostname(),
        software=software_versions(),
        checkpoints=dict(checkpoints),
        events=tuple(events),
        guard=guard,
        step_seconds=dict(step_seconds),
    )


@dataclass
class StalenessCount:
    """Number, sum and maximum of the staleness of pushes."""

    pushes: int = 0
    total: int = 0
    maximum: int = 0

    def add(self, staleness: int) -> None:
        self.pushes += 1
        self.total += staleness
        self.maximum = max(self.maximum, staleness)

    @property
    def mean(self) -> float | None:
        """The mean staleness; None if nothing was measured."""
        return self.total / self.pushes if self.pushes else None


@dataclass
class LossMean:
    """Mean training loss since it was last taken."""

    pushes: int = 0
    total: float = 0.0

    def add(self, loss: float, pushes: int = 1) -> None:
        self.pushes += pushes
        self.total += pushes * loss

    def take(self) -> float:
        """Returns the mean and starts afresh; NaN if nothing was pushed."""
        mean = self.total / self.pushes if self.pushes else math.nan
        self.pushes, self.total = 0, 0.0
        return mean


def interpolated(step: float, steps: Sequence[float], values: Sequence[float]) -> float:
    """Interpolates the value at a step; before the first and after the last step it is theirs."""
    after = bisect_right(steps, step)
    if after in (0, len(steps)):
        return values[max(0, after - 1)]
    share = (step - steps[after - 1]) / (steps[after] - steps[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])


class RunTimes:
    """The training time of a run as a function of its worker-steps.

    It is interpolated linearly between the start, the evaluations and the ends of the phases, and
    constant before and after the run.
    """

    def __init__(
        self,
        phases: Iterable[PhaseRecord],
        evaluations: Iterable[Evaluation],
        training_seconds: float,
        worker_steps: int,
    ) -> None:
        times = {evaluation.worker_step: evaluation.elapsed_seconds for evaluation in evaluations}
        seconds = 0.0
        for phase in phases:
            seconds += phase.seconds
            times[phase.end_worker_step] = seconds
        times = {step: times[step] for step in sorted(times) if 0 < step < worker_steps}
        times = {0: 0.0, **times, worker_steps: training_seconds}
        self._worker_steps = list(times)
        # Two measurements of nearly the same moment may contradict each other a little.
        ascending = accumulate(times.values(), max)
        self._seconds = [min(one, training_seconds) for one in ascending]

    def seconds_at(self, worker_step: float) -> float:
        return interpolated(worker_step, self._worker_steps, self._seconds)


def cut_phases(
    phases: Iterable[PhaseRecord], start_worker_step: int, end_worker_step: int, clock: RunTimes
) -> tuple[PhaseRecord, ...]:
    """Cuts out the part of a run between two worker-steps; staleness is that of whole phases."""
    cut = []
    for phase in phases:
        start = max(phase.start_worker_step, start_worker_step)
        end = min(phase.end_worker_step, end_worker_step)
        if (start, end) == (phase.start_worker_step, phase.end_worker_step):
            cut.append(phase)
        elif start < end:
            seconds = clock.seconds_at(end) - clock.seconds_at(start)
            cut.append(
                replace(phase, start_worker_step=start, end_worker_step=end, seconds=seconds)
            )
    return tuple(cut)


def merge_phases(phases: Sequence[PhaseRecord]) -> tuple[PhaseRecord, ...]:
    """Joins neighbouring phases of one protocol."""
    merged: list[PhaseRecord] = []
    for phase in phases:
        if merged and merged[-1].protocol == phase.protocol:
            phase = _merged(merged.pop(), phase)
        merged.append(phase)
    return tuple(merged)


def _merged(first: PhaseRecord, second: PhaseRecord) -> PhaseRecord:
    mean = most = None
    if first.mean_staleness is not None and second.mean_staleness is not None:
        steps = [one.end_worker_step - one.start_worker_step for one in (first, second)]
        total = first.mean_staleness * steps[0] + second.mean_staleness * steps[1]
        mean = total / max(1, sum(steps))
    if first.max_staleness is not None and second.max_staleness is not None:
        most = max(first.max_staleness, second.max_staleness)
    return replace(
        first,
        end_worker_step=second.end_worker_step,
        seconds=first.seconds + second.seconds,
        mean_staleness=mean,
        max_staleness=most,
    )
