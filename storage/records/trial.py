"""What one training run is asked for, and what it measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from syncswitch.storage.records.guard import Band, GuardOutcome
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity

CONVERGENCE_EVALUATIONS = 5
"""So many of the last evaluations of a run make its converged accuracy."""

BASELINE_PERCENT = 100.0
"""Switch point of the first protocol alone."""


class TrialState(str, Enum):
    """How far a training run is; its text is what databases and JSON hold.

    Stale is one that runs for all the database knows, but whose process is dead: never stored.
    """

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    STALE = "stale"

    __str__ = str.__str__


MOST_FURTHER = 50
"""The most further metrics of one evaluation."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One test of the model on the test set.

    Attributes:
        worker_step: Worker-steps done when the parameters were copied.
        elapsed_seconds: Training time at that moment.
        accuracy: Of the test; of another metric what is compared, see `Metric`.
        training_loss: Mean training loss since the evaluation before.
        further: What else was measured, names and own values; nothing is decided by it.
    """

    worker_step: int
    elapsed_seconds: float
    accuracy: float
    training_loss: float
    further: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Evaluation:
        """Rebuilds one from its `asdict`, which may have been JSON in between."""
        further = tuple((name, value) for name, value in values.get("further", ()))
        return cls(**{**values, "further": further})


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """Everything that determines one training run.

    Attributes:
        identity: The workload, the cluster's size and the pair of protocols.
        switch_percent: Percent of W worker-steps done in the first protocol, 0 to 100.
        seed: Seed of the initial parameters and of the order of the data.
        replicate: Number of this repeat of the switch point, from 0.
        fork_from: Checkpoint to start from instead of fresh parameters.
        checkpoint_percents: Percents of W at which to write a checkpoint.
        checkpoint_directory: Where these checkpoints go.
        spare_directories: Where, in this order, the one at the end goes if it cannot be written
            there: without it the run would be for nothing.
        conditions: Under which the run trains.
        inherited_evaluations: Tests of the part before `fork_from`: they count for the accuracy
            that it converges to, and are not reported again.
        resume: Go on from the last whole checkpoint that this run left in `checkpoint_directory`
            before it was interrupted; where there is none, start afresh.
        kept_checkpoints: So many checkpoints stay, those of the most worker-steps; None for all, as
            other runs may start from each.
        band: What the run is held against after its switch: where it fails, it goes back there and
            on in the first protocol. None for no guard.
        retry_percents: Where a run that has gone back switches again, ascending and later than the
            switch: at the second of them if it fails after the first as well, and so on. After the
            last it goes on in the first protocol to the end; empty for that at once.
    """

    identity: WorkloadIdentity
    switch_percent: float
    seed: int
    replicate: int = 0
    fork_from: Path | None = None
    checkpoint_percents: tuple[float, ...] = ()
    checkpoint_directory: Path | None = None
    spare_directories: tuple[Path, ...] = ()
    conditions: RunConditions = RunConditions()  # noqa: RUF009 (it is frozen)
    inherited_evaluations: tuple[Evaluation, ...] = ()
    resume: bool = False
    kept_checkpoints: int | None = None
    band: Band | None = None
    retry_percents: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PhaseRecord:
    """Measurements of the part of a run that used one protocol.

    Staleness is counted in updates: how many were applied between a worker's pull and its push;
    None where nobody counted.
    """

    protocol: str
    start_worker_step: int
    end_worker_step: int
    seconds: float
    mean_staleness: float | None
    max_staleness: int | None

    @property
    def worker_steps_per_second(self) -> float:
        """Throughput of the cluster; 0 for an empty phase."""
        steps = self.end_worker_step - self.start_worker_step
        return steps / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened to a run, or that was decided about it, and why.

    Attributes:
        kind: `detected` (a straggler), `cleared` (no longer one), `permanent` (for too long),
            `removed` and `restored` (a worker, by a policy), `switched` (to another protocol),
            `injected` (a disturbance on purpose begins), `lost` (a worker or the parameter server
            died or hung), `returned` (it is back), `rebuilt` (the state comes from a checkpoint),
            `resumed` (the chief itself was gone), `unsaved` (a checkpoint or a copy could not be
            written),
            `alarmed` (the guard found that it fails: it goes back to its switch, perhaps to switch
            again later, or ends where a search made it).
        worker_step: Worker-steps done at that moment.
        elapsed_seconds: Training time at that moment.
        reason: Why, with figures, for people.
        worker: Number of the worker; None where it is about no single one.
        seconds: How long it took; None where that says nothing.
    """

    kind: str
    worker_step: int
    elapsed_seconds: float
    reason: str
    worker: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """The measurements of one training run.

    Attributes:
        spec: What was asked for.
        worker_steps: Worker-steps done at the end, those of a fork's prefix included.
        evaluations: In the order of their worker-steps; of a fork those that it made itself.
        phases: One for each protocol that ran; of a fork likewise.
        converged_accuracy: Mean of the last 5 evaluations, inherited ones included (finite also
            for a diverged run).
        converged_evaluations: It is the mean of so many, or of all where there are fewer: 5 in a
            run that was made here.
        guard: What its guard did; None without one.
        converged: Whether the last 5, all after the last learning-rate decay, span at most 0.1 pp.
        diverged: Non-finite loss or parameters, or accuracy at chance after the first decay.
        stopped_early: The observer answered "stop".
        training_seconds: Training time until its end or stop, a fork's prefix included, start-up
            excluded. Tests run beside the training, on the chief; what the training waits for
            them is excluded too.
        inherited_seconds: The part of `training_seconds` that a fork did not pay for itself.
        switch_overhead_seconds: From the last update of one protocol to the first step of the next.
        started_at: Time zone aware.
        ended_at: Time zone aware.
        host: Name of the chief's machine.
        software: Version by name of distribution.
        checkpoints: Files written, by percent of W.
        events: What happened to it, in order.
    """

    spec: TrialSpec
    worker_steps: int
    evaluations: tuple[Evaluation, ...]
    phases: tuple[PhaseRecord, ...]
    converged_accuracy: float
    converged: bool
    diverged: bool
    stopped_early: bool
    training_seconds: float
    inherited_seconds: float
    switch_overhead_seconds: float
    started_at: datetime
    ended_at: datetime
    host: str
    software: Mapping[str, str] = field(default_factory=dict)
    checkpoints: Mapping[float, Path] = field(default_factory=dict)
    events: tuple[RunEvent, ...] = ()
    converged_evaluations: int = CONVERGENCE_EVALUATIONS
    guard: GuardOutcome | None = None

    @property
    def final_accuracy(self) -> float:
        """Accuracy of the last evaluation; the worst where there was none."""
        worst = self.spec.identity.decided_by.worst_accuracy
        return self.evaluations[-1].accuracy if self.evaluations else worst

    @property
    def paid_seconds(self) -> float:
        """Training time that this run itself cost."""
        return self.training_seconds - self.inherited_seconds
