from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.policies.diff import FactDiff, compare
from syncswitch.storage.policies.similarity import JobFacts
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy


@pytest.fixture
def job(identity: WorkloadIdentity) -> JobFacts:
    return JobFacts.of(identity)


def test_a_policy_is_equal_to_itself_and_to_its_copies(policy: TimingPolicy, job: JobFacts) -> None:
    copy = replace(
        policy,
        version=7,
        created_at="2027-01-01T00:00:00+00:00",
        evidence=tuple(reversed(policy.evidence)),
    )
    found = compare(policy, copy, job, job)
    assert found.is_equal
    assert found.facts == found.workload == found.unknown == ()
    assert found.evidence.both == policy.evidence


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"switch_percent": 25.0}, {"switch_percent": (12.5, 25.0)}),
        ({"mean_accuracy": None}, {"mean_accuracy": (0.895, None)}),
        ({"target_accuracy": 0.91}, {"target_accuracy": (0.9, 0.91)}),
        ({"threshold": 0.02}, {"threshold": (0.01, 0.02)}),
        (
            {"baseline_seconds": None},
            {"speed_up": (2.0, None), "baseline_seconds": (6.0, None)},
        ),
        (
            {"training_seconds": 1.5},
            {"speed_up": (2.0, 4.0), "training_seconds": (3.0, 1.5)},
        ),
        ({"strategy": "paper"}, {"strategy": ("adaptive", "paper")}),
        ({"confidence": 0.97}, {"confidence": (None, 0.97)}),
        (
            {"criterion": "kept", "keep": 0.95, "kept_share": 0.93, "baseline_kept_share": 0.99},
            {
                "criterion": ("mean", "kept"),
                "keep": (None, 0.95),
                "kept_share": (None, 0.93),
                "baseline_kept_share": (None, 0.99),
            },
        ),
        (
            {"speed_up_low": 1.5, "speed_up_high": 2.5},
            {"speed_up_low": (None, 1.5), "speed_up_high": (None, 2.5)},
        ),
        ({"reason": "saves no time"}, {"reason": (None, "saves no time")}),
        ({"study": "digits-2"}, {"study": ("digits-1", "digits-2")}),
        ({"workload": "numbers"}, {"workload": ("digits", "numbers")}),
        (
            {"software": {"keras": "3"}},
            {"software tensorflow": ("2.16.1", None), "software keras": (None, "3")},
        ),
    ],
)
def test_only_what_differs_is_named(
    policy: TimingPolicy, job: JobFacts, change: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = compare(policy, replace(policy, **change), job, job)
    assert found.facts == tuple(
        FactDiff(name, first, second) for name, (first, second) in expected.items()
    )
    assert not found.is_equal
    assert found.evidence.is_equal


def test_the_workload_is_compared_as_for_a_suggestion(
    policy: TimingPolicy, identity: WorkloadIdentity, other_identity: WorkloadIdentity
) -> None:
    other = replace(policy, fingerprint=other_identity.fingerprint, workers=8)
    found = compare(policy, other, JobFacts.of(identity), JobFacts.of(other_identity))
    assert [difference.text for difference in found.workload] == [
        "8 workers instead of 4: a smaller cluster may switch earlier"
    ]
    assert [fact.name for fact in found.facts] == ["fingerprint"]
    assert found.unknown == ()
    # A file of version 1 knows less of its workload.
    found = compare(policy, other, JobFacts.of(identity), JobFacts.of(other))
    assert "model" in found.unknown
    assert not found.is_equal


def test_policies_of_one_fingerprint_have_one_workload(
    policy: TimingPolicy, identity: WorkloadIdentity
) -> None:
    found = compare(policy, policy, JobFacts.of(identity), JobFacts.of(policy))
    assert found.is_equal
    assert found.unknown == ()


def test_runs_are_known_by_study_and_number(policy: TimingPolicy, job: JobFacts) -> None:
    run = policy.evidence[0]
    kept, changed, removed, added = (replace(run, trial_number=number) for number in range(10, 14))
    namesake = replace(kept, study="another study")
    for order in itertools.permutations((kept, changed, removed)):
        before = replace(policy, evidence=order)
        new = replace(changed, converged_accuracy=0.5)
        after = replace(policy, evidence=(namesake, added, new, kept))
        found = compare(before, after, job, job).evidence
        assert not found.is_equal
        assert found.only_first == (removed,)
        assert found.only_second == (namesake, added)
        assert set(found.both) == {kept, changed}
        assert found.changed == (new,)
