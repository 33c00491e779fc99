"""The record of a trial."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

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
from syncswitch.trainers.job.schedule import Segment, last_boundary
from syncswitch.trainers.run.running_counts import StalenessCount


@dataclass(frozen=True)
class RunResult:
    """The result of a run; see `TrialRecord` for the fields."""

    worker_steps: int
    evaluations: tuple[Evaluation, ...]
    phases: tuple[PhaseRecord, ...]
    diverged: bool
    stopped_early: bool
    training_seconds: float
    inherited_seconds: float = 0.0
    switch_overhead_seconds: float = 0.0
    checkpoints: dict[float, Path] = field(default_factory=dict)
    events: tuple[RunEvent, ...] = ()
    guard: GuardOutcome | None = None


def trial_record(spec: TrialSpec, result: RunResult, started_at: datetime) -> TrialRecord:
    """The record of a run that has just ended on this machine."""
    boundaries = spec.identity.learning_rate_boundaries or ()
    evaluations = (*spec.inherited_evaluations, *result.evaluations)
    metric = spec.identity.decided_by
    return TrialRecord(
        spec=spec,
        worker_steps=result.worker_steps,
        evaluations=result.evaluations,
        phases=result.phases,
        converged_accuracy=converged_accuracy(evaluations, metric.worst_accuracy),
        converged=not result.diverged
        and is_converged(evaluations, last_boundary(boundaries), metric),
        diverged=result.diverged,
        stopped_early=result.stopped_early,
        training_seconds=result.training_seconds,
        inherited_seconds=result.inherited_seconds,
        switch_overhead_seconds=result.switch_overhead_seconds,
        started_at=started_at,
        ended_at=datetime.now(timezone.utc),
        host=socket.gethostname(),
        software=software_versions(),
        checkpoints=result.checkpoints,
        events=result.events,
        guard=result.guard,
    )


def phase_record(
    segment: Segment, done: int, seconds: float, staleness: StalenessCount
) -> PhaseRecord:
    """What was measured in a segment that ended with worker-step `done`."""
    return PhaseRecord(
        segment.protocol,
        segment.start_worker_step,
        done,
        seconds,
        staleness.mean,
        staleness.maximum if staleness.pushes else None,
    )


def is_after_first_decay(spec: TrialSpec, worker_step: int) -> bool:
    """Whether a model that is still at chance has diverged."""
    boundaries = spec.identity.learning_rate_boundaries
    return worker_step > boundaries[0][0] if boundaries else False
