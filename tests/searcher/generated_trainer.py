"""A test tool: a trainer whose accuracies are generated, not trained.

Accuracy depends on the switch point and the seed alone, so an undisturbed search and one that was
killed twenty times measure the same values.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialRecord, TrialSpec
from syncswitch.trainers.trainer import Observer, Trainer
from tests.identities import GENERATED
from tests.records import changed

BSP_SECONDS = 100.0
ASP_SECONDS = 40.0


@dataclass
class GeneratedTrainer(Trainer):
    """Generates an accuracy that is flat above a knee and falls below it.

    `noise` is the standard deviation between seeds, `delay_seconds` the real time that a run takes.
    So many `failures` for infrastructure come before any run succeeds. `runs` are the switch points
    and replicates asked for.
    """

    knee_percent: float = 12.5
    plateau: float = 0.95
    loss_at_zero: float = 0.2
    noise: float = 0.001
    second_seconds: float = ASP_SECONDS
    delay_seconds: float = 0.0
    diverges_below_percent: float = 0.0
    failures: int = 0
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.runs: list[tuple[float, int]] = []
        self.specs: list[TrialSpec] = []
        self.closed = 0

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        observer = observer or Observer()
        self.runs.append((spec.switch_percent, spec.replicate))
        self.specs.append(spec)
        started_at = datetime.now(timezone.utc)
        if self.failures:
            self.failures -= 1
            raise RetryableError("the generated server was lost")
        if self.error is not None:
            raise self.error
        self._sleep(spec, observer)
        return self._record(spec, observer, started_at)

    def close(self) -> None:
        self.closed += 1

    def _sleep(self, spec: TrialSpec, observer: Observer) -> None:
        slices = 4
        for part in range(1, slices + 1):
            time.sleep(self.delay_seconds / slices)
            observer.on_progress(spec.identity.total_worker_steps * part // slices)

    def _accuracy(self, spec: TrialSpec) -> float:
        missing = max(0.0, 1 - spec.switch_percent / self.knee_percent)
        noise = random.Random(f"{spec.switch_percent} {spec.seed}").gauss(0, self.noise)
        return self.plateau - self.loss_at_zero * missing + noise

    def _record(self, spec: TrialSpec, observer: Observer, started_at: datetime) -> TrialRecord:
        job = spec.identity
        total = job.total_worker_steps
        diverged = spec.switch_percent < self.diverges_below_percent
        accuracy = 0.1 if diverged else self._accuracy(spec)
        switch_at = round(total * spec.switch_percent / 100)
        first_seconds = BSP_SECONDS * switch_at / total
        seconds = first_seconds + self.second_seconds * (total - switch_at) / total
        phases = (
            PhaseRecord(job.first_protocol, 0, switch_at, first_seconds, 0.0, 0),
            PhaseRecord(job.second_protocol, switch_at, total, seconds - first_seconds, 3.0, 9),
        )
        evaluations = tuple(
            Evaluation(total * part // 5, seconds * part / 5, accuracy, 1.0 / part)
            for part in range(1, 6)
        )
        for evaluation in evaluations:
            observer.on_evaluation(evaluation)
        return TrialRecord(
            spec=spec,
            worker_steps=total,
            evaluations=evaluations,
            phases=tuple(p for p in phases if p.end_worker_step > p.start_worker_step),
            converged_accuracy=accuracy,
            converged=not diverged,
            diverged=diverged,
            stopped_early=False,
            training_seconds=seconds,
            inherited_seconds=0.0,
            switch_overhead_seconds=0.01,
            started_at=started_at,
            ended_at=max(datetime.now(timezone.utc), started_at + timedelta(microseconds=1)),
            host="generated",
            software={"syncswitch": "0"},
        )


def identity(**changes: object) -> ScheduledJob:
    """Of the generated job, with some fields changed."""
    return changed(GENERATED, **changes)
