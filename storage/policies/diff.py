"""What differs between two timing policies. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncswitch.storage.policies.similarity import Difference, JobFacts, differences, not_compared
from syncswitch.storage.records.policy import Evidence, TimingPolicy


@dataclass(frozen=True, slots=True)
class FactDiff:
    """One fact in which two policies differ, in their own units.

    Attributes:
        name: Of the fact, for example `switch_percent`.
        first: Value of the first policy; None where it has none.
        second: Value of the second policy.
    """

    name: str
    first: Any
    second: Any


@dataclass(frozen=True, slots=True)
class EvidenceDiff:
    """The runs that two policies rest on; a run is known by its study and number.

    Attributes:
        only_first: Those of the first policy alone.
        only_second: Those of the second policy alone.
        both: Those of both.
        changed: Those of both that measured something else in the second one.
    """

    only_first: tuple[Evidence, ...]
    only_second: tuple[Evidence, ...]
    both: tuple[Evidence, ...]
    changed: tuple[Evidence, ...]

    @property
    def is_equal(self) -> bool:
        """Whether they rest on the same runs."""
        return not (self.only_first or self.only_second or self.changed)


@dataclass(frozen=True, slots=True)
class PolicyDiff:
    """All in which two policies differ, their versions and times of creation aside.

    Attributes:
        workload: What the second one was found for, instead of the first one's.
        unknown: Facts of the workload that one side does not know.
        facts: What they say.
        evidence: What they rest on.
    """

    workload: tuple[Difference, ...]
    unknown: tuple[str, ...]
    facts: tuple[FactDiff, ...]
    evidence: EvidenceDiff

    @property
    def is_equal(self) -> bool:
        """Whether nothing that is known differs."""
        return not (self.workload or self.facts) and self.evidence.is_equal


def compare(
    first: TimingPolicy, second: TimingPolicy, first_job: JobFacts, second_job: JobFacts
) -> PolicyDiff:
    """Compares two policies.

    Args:
        first: A policy.
        second: Another one.
        first_job: What is known of the workload of the first one.
        second_job: What is known of the workload of the second one.
    """
    is_same_job = first.fingerprint == second.fingerprint
    before, after = _facts(first), _facts(second)
    return PolicyDiff(
        workload=() if is_same_job else tuple(differences(first_job, second_job)),
        unknown=() if is_same_job else tuple(not_compared(first_job, second_job)),
        facts=tuple(
            FactDiff(name, before.get(name), after.get(name))
            for name in dict.fromkeys([*before, *after])
            if before.get(name) != after.get(name)
        ),
        evidence=_evidence(first, second),
    )


def _facts(policy: TimingPolicy) -> Mapping[str, Any]:
    return {
        "workload": policy.workload,
        "fingerprint": policy.fingerprint,
        "switch_percent": policy.switch_percent,
        "mean_accuracy": policy.mean_accuracy,
        "target_accuracy": policy.target_accuracy,
        "threshold": policy.threshold,
        "speed_up": policy.speed_up,
        "speed_up_low": policy.speed_up_low,
        "speed_up_high": policy.speed_up_high,
        "training_seconds": policy.training_seconds,
        "baseline_seconds": policy.baseline_seconds,
        "evidence_seconds": math.fsum(run.training_seconds for run in policy.evidence),
        "strategy": policy.strategy,
        "criterion": policy.criterion,
        "keep": policy.keep,
        "kept_share": policy.kept_share,
        "baseline_kept_share": policy.baseline_kept_share,
        "confidence": policy.confidence,
        "reason": policy.reason,
        "study": policy.study,
        **{f"software {name}": version for name, version in sorted(policy.software.items())},
    }


def _evidence(first: TimingPolicy, second: TimingPolicy) -> EvidenceDiff:
    before = {(run.study, run.trial_number): run for run in first.evidence}
    after = {(run.study, run.trial_number): run for run in second.evidence}
    both = [key for key in before if key in after]
    return EvidenceDiff(
        only_first=tuple(run for key, run in before.items() if key not in after),
        only_second=tuple(run for key, run in after.items() if key not in before),
        both=tuple(before[key] for key in both),
        changed=tuple(after[key] for key in both if before[key] != after[key]),
    )
