"""The values that pass between searcher, trainers and storage: frozen, standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

__all__ = [
    "LARGEST_SEED",
    "Evaluation",
    "Evidence",
    "PhaseRecord",
    "RegisteredWorkload",
    "RunConditions",
    "RunEvent",
    "TimingPolicy",
    "TrialRecord",
    "TrialSpec",
    "WorkloadIdentity",
]

LARGEST_SEED = 2**31 - 1
"""Of a run: fits everything that takes a seed."""


CONVERGENCE_EVALUATIONS = 5
"""So many of the last evaluations of a run make its converged accuracy."""


@dataclass(frozen=True, slots=True)
class WorkloadIdentity:
    """What makes two jobs the same for a timing policy.

    Seed, paths and host are left out on purpose, and so is `name`, which only people use. What
    nobody recorded of an imported job is None; then the job is told apart by its name, too.

    Attributes:
        name: What people call the workload, for example `digits`.
        model: Digest of the model's structure (layers and shapes, no weights).
        data_set: Declared name of the data set.
        loss: Name of the training loss.
        optimizer: The optimizer and its settings as canonical JSON.
        total_worker_steps: W, the length of the job.
        batch_size: B, examples per worker-step.
        learning_rate: eta, for one worker.
        momentum: Momentum of the optimizer; 0 where it has none.
        learning_rate_boundaries: `(worker_step, factor)`: from that worker-step on the learning
            rate is eta times factor.
        metric: Name of what is called accuracy.
        evaluation_interval_worker_steps: How often the model is tested.
        workers: n, the size of the cluster.
        first_protocol: Protocol before the switch, for example `bsp`.
        second_protocol: Protocol after the switch, for example `asp`.
        simulated_cluster: Digest of the profile of a simulated cluster; None for a real one.
    """

    name: str
    model: str | None
    data_set: str | None
    loss: str | None
    optimizer: str | None
    total_worker_steps: int
    batch_size: int | None
    learning_rate: float | None
    momentum: float | None
    learning_rate_boundaries: tuple[tuple[int, float], ...] | None
    metric: str | None
    evaluation_interval_worker_steps: int | None
    workers: int
    first_protocol: str
    second_protocol: str
    simulated_cluster: str | None = None

    @property
    def cluster(self) -> str:
        """Size, kind and protocols in words, for example `4 simulated workers, bsp,asp`."""
        kind = "" if self.simulated_cluster is None else "simulated "
        noun = "worker" if self.workers == 1 else "workers"
        return f"{self.workers} {kind}{noun}, {self.first_protocol},{self.second_protocol}"

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits, the same on every machine and in every year."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        if self.model is not None:
            del content["name"]
        if self.simulated_cluster is None:  # a real job is known by what it was always known by
            del content["simulated_cluster"]
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RegisteredWorkload:
    """A workload as a database knows it.

    Attributes:
        identity: What it is.
        reference: Normal form of how to load it: a built-in name, `file.py:attribute` or
            `package.module:attribute`.
    """

    identity: WorkloadIdentity
    reference: str


@dataclass(frozen=True, slots=True)
class RunConditions:
    """What besides the job decides how a run goes; runs are compared under the same ones only.

    Attributes:
        online: What is done about stragglers before the switch: `none`, `greedy` or `elastic`.
        switch_mechanism: `hot`, or `restart` for a checkpoint and a new cluster.
        injections: Disturbances on purpose, each in the way in which it is recorded.
    """

    online: str = "none"
    switch_mechanism: str = "hot"
    injections: tuple[str, ...] = ()

    @property
    def is_undisturbed(self) -> bool:
        """Nothing was injected, decided beside the timing policy, or restarted."""
        return self == RunConditions()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One test of the model on the test set.

    Attributes:
        worker_step: Worker-steps done when the parameters were copied.
        elapsed_seconds: Training time at that moment.
        accuracy: Test accuracy, 0 to 1.
        training_loss: Mean training loss since the evaluation before.
    """

    worker_step: int
    elapsed_seconds: float
    accuracy: float
    training_loss: float


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """Everything that determines one training run.

    Attributes:
        identity: The workload, the cluster's size and the pair of protocols.
        switch_percent: Percent of W worker-steps done in the first protocol, 0 to 100.
        seed: Seed of the initial parameters and of the order of the data.
        replicate: Number of this repeat of the setting, from 0.
        fork_from: Checkpoint to start from instead of fresh parameters.
        checkpoint_percents: Percents of W at which to write a checkpoint.
        checkpoint_directory: Where these checkpoints go.
        conditions: Under which the run trains.
        inherited_evaluations: Tests of the part before `fork_from`: they count for the accuracy
            that it converges to, and are not reported again.
        resume: Go on from the last whole checkpoint that this run left in `checkpoint_directory`
            before it was interrupted; where there is none, start afresh.
        kept_checkpoints: So many checkpoints stay, those of the most worker-steps; None for all, as
            other runs may start from each.
    """

    identity: WorkloadIdentity
    switch_percent: float
    seed: int
    replicate: int = 0
    fork_from: Path | None = None
    checkpoint_percents: tuple[float, ...] = ()
    checkpoint_directory: Path | None = None
    conditions: RunConditions = RunConditions()
    inherited_evaluations: tuple[Evaluation, ...] = ()
    resume: bool = False
    kept_checkpoints: int | None = None


@dataclass(frozen=True, slots=True)
class PhaseRecord:
    """What was measured in the part of a run that used one protocol.

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
            `resumed` (the chief itself was gone), `unsaved` (a checkpoint could not be written).
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
    """What one training run measured.

    Attributes:
        spec: What was asked for.
        worker_steps: Worker-steps done at the end, those of a fork's prefix included.
        evaluations: In the order of their worker-steps; of a fork those that it made itself.
        phases: One for each protocol that ran; of a fork likewise.
        converged_accuracy: Mean of the last 5 evaluations, inherited ones included (finite also
            for a diverged run).
        converged_evaluations: It is the mean of so many, or of all where there are fewer: 5 in a
            run that was made here.
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

    @property
    def final_accuracy(self) -> float:
        """Accuracy of the last evaluation; 0 where there was none."""
        return self.evaluations[-1].accuracy if self.evaluations else 0.0

    @property
    def paid_seconds(self) -> float:
        """Training time that this run itself cost."""
        return self.training_seconds - self.inherited_seconds


@dataclass(frozen=True, slots=True)
class Evidence:
    """One trial that a timing policy rests on."""

    study: str
    trial_number: int
    switch_percent: float
    replicate: int
    converged_accuracy: float
    diverged: bool
    training_seconds: float


@dataclass(frozen=True, slots=True)
class TimingPolicy:
    """When to switch, for one workload fingerprint. Immutable.

    Attributes:
        fingerprint: Of the workload that it was found for.
        version: 1, 2, ... per fingerprint.
        workload: Name of the workload, for people.
        workers: n, the size of the cluster.
        total_worker_steps: W.
        first_protocol: Protocol before the switch.
        second_protocol: Protocol after the switch.
        switch_percent: Percent of W in the first protocol.
        target_accuracy: A, mean converged accuracy of the first protocol alone, or as given.
        threshold: beta, the accuracy that may be lost.
        mean_accuracy: Measured at `switch_percent`; None where no run was made there.
        training_seconds: Mean at `switch_percent`; None where no run was made there.
        baseline_seconds: Mean training time of the first protocol alone; None where unknown.
        strategy: Name of the rule that decided.
        study: Name of the Optuna study that found it.
        evidence: The completed trials of that study.
        created_at: ISO 8601, UTC.
        software: Version by name of distribution.
        confidence: Probability, as the rule sees it, that `switch_percent` is good: by the
            criterion `kept`, that enough of the later runs keep the accuracy; by `mean`, that it is
            the earliest acceptable setting. None where the rule gives none.
        criterion: `kept`: enough of the later runs with the policy lose at most beta, or nearly as
            many as of the first protocol's own; `mean`: their mean accuracy does.
        keep: So large a share of later runs is enough, 0 to 1; None by the criterion `mean`.
        kept_share: Expected share of later runs with the policy that lose at most beta; None where
            the rule gives none.
        baseline_kept_share: The same of the first protocol alone.
        speed_up_low: Lower end of the 90 % interval of the speed-up; None where too few runs were
            timed.
        speed_up_high: Upper end of it.
        reason: Why it is the first protocol alone, as a clause such as `an earlier switch saves no
            time`; None where it is not, or nobody said.
    """

    fingerprint: str
    version: int
    workload: str
    workers: int
    total_worker_steps: int
    first_protocol: str
    second_protocol: str
    switch_percent: float
    target_accuracy: float
    threshold: float
    mean_accuracy: float | None
    training_seconds: float | None
    baseline_seconds: float | None
    strategy: str
    study: str
    evidence: tuple[Evidence, ...]
    created_at: str
    software: Mapping[str, str] = field(default_factory=dict)
    confidence: float | None = None
    criterion: str = "mean"
    keep: float | None = None
    kept_share: float | None = None
    baseline_kept_share: float | None = None
    speed_up_low: float | None = None
    speed_up_high: float | None = None
    reason: str | None = None

    @property
    def cluster(self) -> str:
        """Size and protocols in words, for example `4 workers, bsp,asp`.

        Whether the cluster is simulated, the workload alone knows.
        """
        noun = "worker" if self.workers == 1 else "workers"
        return f"{self.workers} {noun}, {self.first_protocol},{self.second_protocol}"

    @property
    def speed_up(self) -> float | None:
        """Baseline time over time with this policy; None where either is unknown."""
        if not self.baseline_seconds or not self.training_seconds:
            return None
        return self.baseline_seconds / self.training_seconds
