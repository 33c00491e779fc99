"""What differs between two timing policies. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy

_ASIDE = frozenset({"name", "version", "created_at"})  # the name of the job is in the policy, too


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field that two policies have otherwise.

    Attributes:
        field: Of the policy or of its job; of software with the name of the distribution.
        before: Value in the first one; None where it has none.
        after: Value in the second one.
    """

    field: str
    before: Any
    after: Any


def policy_differences(
    first: TimingPolicy,
    second: TimingPolicy,
    first_job: WorkloadIdentity,
    second_job: WorkloadIdentity,
) -> list[FieldDifference]:
    """Compares two policies and their jobs, versions and times of creation aside.

    Args:
        first: A policy.
        second: Another one.
        first_job: What the first one was found for.
        second_job: What the second one was found for.
    """
    before, after = _fields(first, first_job), _fields(second, second_job)
    return [
        FieldDifference(name, before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _fields(policy: TimingPolicy, job: WorkloadIdentity) -> Mapping[str, Any]:
    content = {**asdict(policy), "speed_up": policy.speed_up, **asdict(job)}
    content["evidence"] = sorted(
        content["evidence"], key=lambda run: (run["study"], run["trial_number"])
    )
    software = {f"software {name}": version for name, version in content.pop("software").items()}
    return {name: value for name, value in (content | software).items() if name not in _ASIDE}
