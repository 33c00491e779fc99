from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from syncswitch.storage.queries.policies import FieldDifference, policy_differences
from syncswitch.storage.records.guard import Band, BandPoint
from tests.records import changed
from tests.storage.conftest import IDENTITY, OTHER_IDENTITY, POLICY

POINT = BandPoint(500, 0.8, 0.0)
LOWER = replace(POLICY.evidence[1], converged_accuracy=0.5)


def test_a_policy_is_equal_to_itself_and_to_its_copies() -> None:
    copy = replace(
        POLICY,
        version=7,
        created_at="2027-01-01T00:00:00+00:00",
        evidence=tuple(reversed(POLICY.evidence)),
    )
    assert policy_differences(POLICY, copy, IDENTITY, changed(IDENTITY, name="numbers")) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"switch_percent": 25.0}, {"switch_percent": (12.5, 25.0)}),
        ({"mean_accuracy": None}, {"mean_accuracy": (0.895, None)}),
        ({"training_seconds": 1.5}, {"speed_up": (2.0, 4.0), "training_seconds": (3.0, 1.5)}),
        (
            {"guarded": True, "min_kept_share": 0.95},
            {"guarded": (False, True), "min_kept_share": (None, 0.95)},
        ),
        ({"band": Band(0.9, 0.01, 3, (POINT, POINT))}, {"band": (None, "3 runs, 2 evaluations")}),
        (
            {"evidence": (POLICY.evidence[0], LOWER)},
            {
                "evidence": (
                    [asdict(POLICY.evidence[1]), asdict(POLICY.evidence[0])],  # by their numbers
                    [asdict(LOWER), asdict(POLICY.evidence[0])],
                )
            },
        ),
        (
            {"software": {"keras": "3"}},
            {"software tensorflow": ("2.16.1", None), "software keras": (None, "3")},
        ),
    ],
)
def test_only_what_differs_is_named(change: dict[str, Any], expected: dict[str, Any]) -> None:
    found = policy_differences(POLICY, changed(POLICY, **change), IDENTITY, IDENTITY)
    assert {one.field: (one.before, one.after) for one in found} == expected


def test_where_less_is_better_the_metrics_own_values_are_compared() -> None:
    less = {"metric": "loss", "metric_goal": "min", "metric_highest": None}
    first = changed(POLICY, **less, target_accuracy=-0.231, mean_accuracy=-0.25)
    second = changed(first, target_accuracy=-0.25, mean_accuracy=None)
    assert policy_differences(first, second, IDENTITY, IDENTITY) == [
        FieldDifference("target_value", 0.231, 0.25),
        FieldDifference("mean_value", 0.25, None),
    ]


def test_the_jobs_are_compared_too() -> None:
    job = changed(OTHER_IDENTITY, momentum=None)
    other = changed(POLICY, fingerprint=job.fingerprint, workers=8)
    assert policy_differences(POLICY, other, IDENTITY, job) == [
        FieldDifference("fingerprint", IDENTITY.fingerprint, job.fingerprint),
        FieldDifference("workers", 4, 8),
        FieldDifference("momentum", 0.9, None),
    ]
