"""The timing policy, and the evidence that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from syncswitch.storage.records.flat import nested
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import JobKey, Protocols, ScheduledJob
from syncswitch.storage.records.limits import (
    COUNT,
    INDEX,
    MOMENT,
    NAME,
    NOT_NEGATIVE,
    PERCENT,
    REASON,
    SHARE,
)
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord, TrialSpec


@dataclass(frozen=True, slots=True)
class Evidence:
    """One trial that a timing policy rests on."""

    study: Annotated[str, NAME]
    trial_number: Annotated[int, INDEX]
    switch_percent: Annotated[float, PERCENT]
    replicate: Annotated[int, INDEX]
    converged_accuracy: float
    diverged: bool
    training_seconds: Annotated[float, NOT_NEGATIVE]


@dataclass(frozen=True, slots=True)
class Promise:
    """What is expected of later runs with a switch; None where a strategy does not say."""

    confidence: Annotated[
        float | None,
        "probability that guarded runs take less time than the baseline; without a guard,"
        " that enough keep the accuracy",
        SHARE,
    ] = None
    kept_share: Annotated[
        float | None, "expected share of runs without a guard that lose at most beta", SHARE
    ] = None
    delivered_share: Annotated[
        float | None,
        "the same share among the models that guarded runs deliver: one whose switch failed is"
        " trained on from an earlier state",
        SHARE,
    ] = None
    baseline_kept_share: Annotated[
        float | None, "the same share with the first protocol alone", SHARE
    ] = None
    expected_time: Annotated[
        float | None,
        "expected time of a later run over the baseline's, failed switches included",
        NOT_NEGATIVE,
    ] = None
    reason: Annotated[
        str | None,
        "why it is the first protocol alone, as a clause such as `an earlier switch saves no time`;"
        " null if it is not, or no reason is known",
        REASON,
    ] = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What runs at the switch point of a policy measured."""

    mean_accuracy: Annotated[
        float | None, "mean accuracy at the switch point; null if no run was made there"
    ] = None
    training_seconds: Annotated[
        float | None,
        "mean training time of a whole run there; null if no run was made",
        NOT_NEGATIVE,
    ] = None
    baseline_seconds: Annotated[
        float | None, "the same with the first protocol alone; null if unknown", NOT_NEGATIVE
    ] = None
    speed_up_low: Annotated[
        float | None,
        "lower end of the 90 % interval of the speed-up; null if too few runs were timed",
        NOT_NEGATIVE,
    ] = None
    speed_up_high: Annotated[float | None, "upper end of the interval", NOT_NEGATIVE] = None

    @property
    def speed_up(self) -> float | None:
        """Baseline time over time with the switch; None if either is unknown."""
        if not self.baseline_seconds or not self.training_seconds:
            return None
        return self.baseline_seconds / self.training_seconds


@dataclass(frozen=True, slots=True)
class TimingPolicy:
    """When to switch, from which protocol to which, for one job. Immutable.

    Attributes:
        job: The job that it was found for.
        protocols: The protocols that it was found for.
        allowed: How much accuracy may be lost.
        measured: What the runs of the search measured.
        promise: What is expected of later runs.
    """

    job: JobKey
    protocols: Protocols
    version: Annotated[int, "1, 2, ... per fingerprint.", COUNT]
    switch_percent: Annotated[float, "Percent of W in the first protocol.", PERCENT]
    target_accuracy: Annotated[
        float | None,
        "A, mean converged accuracy of the first protocol alone, or as given; None until a "
        "run of the first protocol alone has measured it.",
    ]
    allowed: AllowedLoss
    measured: Measured
    strategy: Annotated[str, "Name of the strategy that decided.", NAME]
    study: Annotated[str, "Name of the Optuna study that found it.", NAME]
    evidence: Annotated[tuple[Evidence, ...], "The completed trials of that study."]
    created_at: Annotated[str, "Time of creation, ISO 8601, UTC.", MOMENT]
    promise: Promise = Promise()
    software: Annotated[Mapping[str, str], "Version by name of distribution."] = field(
        default_factory=dict
    )
    guarded: Annotated[
        bool,
        "Whether it was found for trainings that go back to a switch that failed, as later runs"
        " with a policy do; if not, it has to hold without a guard.",
    ] = False
    min_kept_share: Annotated[
        float | None,
        "The share of runs without a guard that has to keep the accuracy, 0 to 1, or the "
        "first protocol's own share less 1 - min_kept_share; None for guarded runs, and if "
        "the strategy has none.",
        SHARE,
    ] = None
    band: Annotated[
        Band | None,
        "Results of the first protocol alone, which a training with this policy is compared "
        "with while it runs; None if they were not recorded.",
    ] = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TimingPolicy:
        """Rebuilds a policy from what its columns hold, as JSON has it."""
        evidence = tuple(nested(Evidence, run) for run in values["evidence"])
        band = None if values["band"] is None else Band.of(values["band"])
        return nested(cls, {**values, "evidence": evidence, "band": band})

    @property
    def threshold(self) -> float:
        """beta, the accuracy that may be lost; 0 until it is measured."""
        return self.allowed.threshold

    @property
    def stated_band(self) -> Band:
        """Its band; one of the target alone where no curve was recorded."""
        return self.band or Band(self.target_accuracy, self.threshold)

    def is_of(self, identity: ScheduledJob) -> bool:
        """Whether it was found for this job with these protocols."""
        same_job = self.job.fingerprint == identity.fingerprint
        return same_job and self.protocols == identity.protocols

    @property
    def accuracies_alone(self) -> list[float]:
        """What the runs of its search with the first protocol alone reached."""
        return [
            run.converged_accuracy
            for run in self.evidence
            if run.switch_percent == BASELINE_PERCENT and not run.diverged
        ]

    @property
    def is_for_guard(self) -> bool:
        """True if it has a switch that was found for guarded runs."""
        return self.guarded and self.switch_percent < BASELINE_PERCENT


@dataclass(frozen=True, slots=True)
class PolicyUse:
    """A whole run with a policy. Study and time of creation name the policy in every database.

    Attributes:
        use_id: Random identifier, drawn before the run began; a run that was interrupted keeps it
            when it goes on.
        study: Name of the study that found the policy.
        created_at: Time of the policy's creation, ISO 8601, UTC.
        version: Version of the policy in the registry that it was taken from.
        record: The measurements of the run.
    """

    use_id: str
    study: str
    created_at: str
    version: int
    record: TrialRecord

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the job, and so of the policy."""
        return self.record.spec.identity.fingerprint


def whole_use(policy: TimingPolicy, use_id: str, record: TrialRecord) -> PolicyUse | None:
    """Makes a use of a run with a policy; None if the run came to no end of its own.

    The parts of its specification that only the run itself needed are left out.
    """
    is_at_end = record.worker_steps >= policy.job.total_worker_steps
    if record.stopped_early or not (is_at_end or record.diverged):
        return None
    kept = (
        "identity",
        "switch_percent",
        "seed",
        "replicate",
        "conditions",
        "inherited_evaluations",
    )
    spec = TrialSpec(**{name: getattr(record.spec, name) for name in kept})
    measured = replace(record, spec=spec, checkpoints={})
    return PolicyUse(use_id, policy.study, policy.created_at, policy.version, measured)
