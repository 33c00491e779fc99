"""The specification of one training run, and its measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from syncswitch.storage.records.flat import nested
from syncswitch.storage.records.guard import Band, FailedSwitch, GuardOutcome, later_switch_points
from syncswitch.storage.records.job import Protocols, RunConditions, ScheduledJob

CONVERGENCE_EVALUATIONS = 5
"""Number of last evaluations of a run whose mean is its converged accuracy."""

LONGEST_SECONDS = 1e10
"""More than any training takes, 300 years, and so little that sums and ratios stay finite."""

BASELINE_PERCENT = 100.0
"""Switch point of the first protocol alone."""


class TrialState(str, Enum):
    """The state of a training run; databases and JSON hold its text.

    A stale run is stored as running, but its process is dead; the state itself is never stored.
    """

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    STALE = "stale"

    __str__ = str.__str__


MOST_FURTHER = 50
"""The largest number of further metrics of one evaluation."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of the model on the test set.

    Attributes:
        worker_step: Worker-steps done when the parameters were copied.
        elapsed_seconds: Training time at that moment.
        accuracy: The accuracy, in the metric's own sense (see `Metric`).
        training_loss: Mean training loss since the evaluation before.
        further: Names and values of further metrics, which decide nothing.
    """

    worker_step: int
    elapsed_seconds: float
    accuracy: float
    training_loss: float
    further: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Evaluation:
        """Rebuilds an evaluation from its `asdict`, which may have been JSON in between."""
        further = tuple((name, value) for name, value in values.get("further", ()))
        return nested(cls, {**values, "further": further})


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """Everything that determines one training run.

    Attributes:
        identity: The workload, the cluster's size and the pair of protocols.
        switch_percent: Percent of W worker-steps done in the first protocol, 0 to 100.
        seed: Seed of the initial parameters and of the order of the data.
        replicate: Index of this run among the repeats of its switch point, from 0.
        fork_from: Checkpoint to start from instead of fresh parameters.
        checkpoint_percents: Percents of W at which to write a checkpoint.
        checkpoint_directory: Directory of these checkpoints.
        spare_directories: Directories to try, in this order, if the last checkpoint cannot be
            written there: without it the run would be in vain.
        conditions: Conditions under which the run trains.
        inherited_evaluations: Tests of the part before `fork_from`; they count for the converged
            accuracy, and are not reported again.
        resume: Whether to go on from the last whole checkpoint that this run left in
            `checkpoint_directory` before it was interrupted; without one it starts afresh.
        kept_checkpoints: Number of checkpoints to keep, those of the most worker-steps; None for
            all, as other runs may start from each.
        band: Results that the run is compared with after its switch; if it fails, it goes back to
            the switch and on in the first protocol. None for no guard.
        retry_percents: Percents of W, ascending and later than the switch, at which a run that has
            gone back switches again: at the second if it fails after the first as well, and so on.
            After the last one it stays in the first protocol; if empty, at once.
        candidates: The protocols among which the run chooses its second one, at its switch: each is
            tried for a moment, and the fastest goes on, or the first protocol where none is faster.
            Empty for that of the identity.
        fallbacks: The protocols with which the run may switch again once its switch has failed, if
            that is expected to take less time than what it would do in any case. Empty for none.
        leaves_slow: Whether a second phase that becomes slower than the first one was is left for
            it, as also where there are candidates.
    """

    identity: ScheduledJob
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
    candidates: tuple[Protocols, ...] = ()
    fallbacks: tuple[Protocols, ...] = ()
    leaves_slow: bool = False

    @classmethod
    def of_policy(
        cls, identity: ScheduledJob, switch_percent: float, seed: int, band: Band | None
    ) -> TrialSpec:
        """Specifies a later run: with a band it goes back from switches that fail."""
        rule = identity.momentum_after_switch
        retries = () if band is None else later_switch_points(switch_percent, rule)
        return cls(identity, switch_percent, seed, band=band, retry_percents=retries)


@dataclass(frozen=True, slots=True)
class PhaseRecord:
    """Measurements of the part of a run that used one protocol.

    Staleness is counted in updates that were applied between a worker's pull and its push; None if
    it was not counted.
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
    """An incident of a run, or a decision about it, with its reason.

    Attributes:
        kind: `detected` (a straggler), `cleared` (no longer one), `permanent` (for too long),
            `removed` and `restored` (a worker, by a policy), `switched` (to another protocol),
            `injected` (a disturbance on purpose begins), `lost` (a worker or the parameter server
            died or hung), `returned` (it is back), `rebuilt` (the state comes from a checkpoint),
            `resumed` (the chief itself was gone), `unsaved` (a checkpoint or a copy could not be
            written),
            `alarmed` (the guard found that the run fails: it goes back to its switch, perhaps to
            switch again; a run of a search may end there), `tried` (another protocol, for a moment:
            a second one, or the first one anew), `chosen` (the protocol of the rest).
        worker_step: Worker-steps done at that moment.
        elapsed_seconds: Training time at that moment.
        reason: The reason for people, with figures.
        worker: Index of the worker; None if it does not concern a single one.
        seconds: Its duration; None if that is meaningless.
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
        spec: The specification of the run.
        worker_steps: Worker-steps done at the end, those of a fork's prefix included.
        evaluations: Tests in the order of their worker-steps; those that a fork made itself.
        phases: One phase for each protocol that ran; those that a fork ran itself.
        converged_accuracy: Mean of the last 5 evaluations, inherited ones included; finite also
            for a diverged run.
        converged: Whether the last 5 evaluations, all after the last learning-rate decay, span at
            most 0.1 pp.
        diverged: Whether loss or parameters became non-finite, or the accuracy was at chance after
            the first decay.
        stopped_early: Whether the observer stopped it.
        training_seconds: Training time until its end or stop, a fork's prefix included, start-up
            excluded. Tests run beside the training, on the chief; time that the training waits for
            them is excluded too.
        inherited_seconds: The part of `training_seconds` that a fork did not pay for itself.
        switch_overhead_seconds: Time from the last update of one protocol to the first step of the
            next.
        started_at: Beginning of the run, time zone aware.
        ended_at: End of the run, time zone aware.
        host: Name of the chief's machine.
        software: Version by name of distribution.
        checkpoints: Files written, by percent of W.
        events: Incidents and decisions in their order.
        converged_evaluations: Number of evaluations that `converged_accuracy` is the mean of, or
            of all if there are fewer: 5 in a run that was made here.
        guard: Outcome of the guard; None without one.
        step_seconds: The seconds of a worker-step by protocol, for those that the run timed.
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
    step_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def final_accuracy(self) -> float:
        """Accuracy of the last evaluation; the worst possible one without evaluations."""
        worst = self.spec.identity.metric.worst_accuracy
        return self.evaluations[-1].accuracy if self.evaluations else worst

    @property
    def paid_seconds(self) -> float:
        """Training time that this run itself cost."""
        return self.training_seconds - self.inherited_seconds

    @property
    def failed(self) -> tuple[FailedSwitch, ...]:
        """The switches from which its guard sent it back, in their order."""
        return () if self.guard is None else self.guard.failed

    def failed_with(self, second_protocol: str) -> tuple[FailedSwitch, ...]:
        """Those of them that were to this protocol."""
        own = self.spec.identity.second_protocol
        return tuple(one for one in self.failed if (one.second_protocol or own) == second_protocol)

    @property
    def held_percent(self) -> float:
        """The switch with which it came to its end; that with which it began if it is unknown."""
        held = None if self.guard is None else self.guard.held_percent
        return self.spec.switch_percent if held is None else held
