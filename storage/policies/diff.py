"""Compares two timing policies; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy

_ASIDE = frozenset({"name", "version", "created_at"})  # the policy has the name of the job, too


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field in which two policies or their jobs differ; None if one has no value.

    The field of a distribution is `software`, a space, and its name.
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
    """Compares two policies and their jobs, except versions and times of creation."""
    before, after = _fields(first, first_job), _fields(second, second_job)
    return [
        FieldDifference(name, before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _fields(policy: TimingPolicy, job: WorkloadIdentity) -> Mapping[str, Any]:
    content = {**asdict(policy), "speed_up": policy.speed_up, **asdict(job)}
    content["band"] = _band_text(policy.band)
    if policy.decided_by.is_less_better:
        # People know only its own values.
        content = policy.decided_by.with_values(content)
        del content["target_accuracy"], content["mean_accuracy"]
    content["evidence"] = sorted(
        content["evidence"], key=lambda run: (run["study"], run["trial_number"])
    )
    software = {f"software {name}": version for name, version in content.pop("software").items()}
    return {name: value for name, value in (content | software).items() if name not in _ASIDE}


def _band_text(band: Band | None) -> str | None:
    """Says how much a band rests on; its target and threshold are the policy's."""
    return None if band is None else f"{band.runs} runs, {len(band.curve)} tests"
