"""The timing policy, and the evidence that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.metric import ACCURACY_NAME, Metric
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord, TrialSpec


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
        fingerprint: Fingerprint of the workload that it was found for.
        version: 1, 2, ... per fingerprint.
        workload: Name of the workload, for people.
        workers: n, the size of the cluster.
        total_worker_steps: W, the length of the job.
        first_protocol: Protocol before the switch.
        second_protocol: Protocol after the switch.
        switch_percent: Percent of W in the first protocol.
        target_accuracy: A, mean converged accuracy of the first protocol alone, or as given; None
            until a run of the first protocol alone has measured it.
        threshold: beta, the accuracy that may be lost, in the unit of the metric; 0 if it has yet
            to be measured, in runs with the first protocol alone.
        mean_accuracy: Mean accuracy at `switch_percent`; None if no run was made there.
        training_seconds: Mean training time at `switch_percent`; None if no run was made there.
        baseline_seconds: Mean training time of the first protocol alone; None if unknown.
        strategy: Name of the strategy that decided.
        study: Name of the Optuna study that found it.
        evidence: The completed trials of that study.
        created_at: Time of creation, ISO 8601, UTC.
        software: Version by name of distribution.
        guarded: Whether it was found for trainings that go back to a switch that failed, as those
            of `syncswitch-run` do; if not, it has to hold with the bare switch.
        confidence: The strategy's probability that guarded trainings with the policy take less
            time than with the first protocol alone; for a policy for the bare switch, that enough
            of them keep the accuracy. None if the strategy has none.
        keep: The share of trainings with the bare switch that has to keep the accuracy, 0 to 1, or
            1 - keep less than the first protocol's own share; None for guarded trainings, and if
            the strategy has none.
        kept_share: Expected share of later trainings with the bare switch that lose at most beta;
            None if the strategy has none.
        delivered_share: Expected share of delivered models that lose at most beta: with a guard, a
            model whose switch failed is trained on from an earlier state.
        baseline_kept_share: Expected share of trainings with the first protocol alone that do.
        expected_time: Expected time of a later training over that of one with the first protocol
            alone, the cost of failed switches included; None if the strategy has none.
        speed_up_low: Lower end of the 90 % interval of the speed-up; None if too few runs were
            timed.
        speed_up_high: Upper end of the interval.
        reason: Why it is the first protocol alone, as a clause such as `an earlier switch saves no
            time`; None if it is not, or no reason is known.
        band: Results of the first protocol alone, which a training with this policy is compared
            with while it runs; None if they were not recorded.
        metric: Name of the metric that is called accuracy.
        metric_goal: `max` if more of it is better; if `min`, all accuracies are its negatives.
        metric_unit: Unit of the metric, and of `threshold`; None for none.
        metric_lowest: Least possible value of the metric; None for no limit.
        metric_highest: Largest possible value of the metric; None for no limit.
    """

    fingerprint: str
    version: int
    workload: str
    workers: int
    total_worker_steps: int
    first_protocol: str
    second_protocol: str
    switch_percent: float
    target_accuracy: float | None
    threshold: float
    mean_accuracy: float | None
    training_seconds: float | None
    baseline_seconds: float | None
    strategy: str
    study: str
    evidence: tuple[Evidence, ...]
    created_at: str
    software: Mapping[str, str] = field(default_factory=dict)
    guarded: bool = False
    confidence: float | None = None
    keep: float | None = None
    kept_share: float | None = None
    delivered_share: float | None = None
    baseline_kept_share: float | None = None
    expected_time: float | None = None
    speed_up_low: float | None = None
    speed_up_high: float | None = None
    reason: str | None = None
    band: Band | None = None
    metric: str = ACCURACY_NAME
    metric_goal: str = "max"
    metric_unit: str | None = None
    metric_lowest: float | None = 0.0
    metric_highest: float | None = 1.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TimingPolicy:
        """Rebuilds a policy from its JSON values."""
        evidence = tuple(Evidence(**run) for run in values["evidence"])
        band = None if values["band"] is None else Band.of(values["band"])
        return cls(**{**values, "evidence": evidence, "band": band})

    @property
    def decided_by(self) -> Metric:
        """The metric that its runs were compared by."""
        return Metric(
            self.metric,
            self.metric_goal,
            self.metric_unit,
            self.metric_lowest,
            self.metric_highest,
        )

    @property
    def is_for_guard(self) -> bool:
        """True if it has a switch that was found for guarded trainings."""
        return self.guarded and self.switch_percent < BASELINE_PERCENT

    @property
    def bare_warning(self) -> str | None:
        """A warning against its switch without a guard; None if it needs none."""
        if not self.is_for_guard:
            return None
        share = "fewer runs"
        if self.kept_share is not None:
            share = f"about {100 * self.kept_share:.0f} of 100 runs"
        return (
            f"this policy was found for guarded trainings: with the bare switch {share} keep the"
            " accuracy; for a careful one, search with: syncswitch-search run --no-guard"
        )

    @property
    def speed_up(self) -> float | None:
        """Baseline time over time with this policy; None if either is unknown."""
        if not self.baseline_seconds or not self.training_seconds:
            return None
        return self.baseline_seconds / self.training_seconds


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
    is_at_end = record.worker_steps >= policy.total_worker_steps
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
