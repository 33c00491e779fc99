"""What a policy file may hold, as pydantic models, and as the JSON Schema that we publish."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy

__all__ = [
    "LARGEST_INTEGER",
    "SCHEMA_VERSION",
    "Document",
    "DocumentVersion1",
    "DocumentVersion2",
    "DocumentVersion3",
    "EvidenceContent",
    "PolicyContent",
    "WorkloadContent",
    "policy_schema",
]

SCHEMA_VERSION = 4
"""Of the files that this version of the software writes."""

LARGEST_INTEGER = 2**31 - 1
"""Of a column in every database."""

_LARGEST_BIG_INTEGER = 2**63 - 1


def _is_moment(value: str) -> str:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("a time needs a time zone")
    try:
        moment.astimezone(timezone.utc)  # as the registry keeps it
    except OverflowError as error:
        raise ValueError("in UTC the time is not within the years 1 to 9999") from error
    return value


def _names_each_run_once(runs: tuple[EvidenceContent, ...]) -> tuple[EvidenceContent, ...]:
    if len({(run.study, run.trial_number) for run in runs}) < len(runs):
        raise ValueError("a run is named twice")
    return runs


_Name = Annotated[str, Field(min_length=1)]
_Percent = Annotated[float, Field(ge=0, le=100)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Seconds = Annotated[float, Field(ge=0)]
_Ratio = Annotated[float, Field(ge=0)]
_Count = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
_WorkerSteps = Annotated[int, Field(ge=1, le=_LARGEST_BIG_INTEGER)]
_Index = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
_Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Checksum = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
_Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class _Content(BaseModel):
    # Most commands need one of these models, and no command all of them.
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class EvidenceContent(_Content):
    """One training run that the policy rests on."""

    study: _Name
    trial_number: _Index
    switch_percent: _Percent
    replicate: _Index
    converged_accuracy: _Share
    diverged: bool
    training_seconds: _Seconds


class _PolicyContentVersion2(_Content):
    """As files of the versions 1 and 2 have it."""

    fingerprint: _Fingerprint
    version: _Count
    workload: _Name
    workers: _Count
    total_worker_steps: _WorkerSteps
    first_protocol: _Name
    second_protocol: _Name
    switch_percent: _Percent
    target_accuracy: _Share
    threshold: _Share
    mean_accuracy: _Share | None
    training_seconds: _Seconds | None
    baseline_seconds: _Seconds | None
    strategy: _Name
    study: _Name
    evidence: Annotated[tuple[EvidenceContent, ...], AfterValidator(_names_each_run_once)]
    created_at: Annotated[_Moment, AfterValidator(_is_moment)]
    software: dict[str, str]


class _PolicyContentVersion3(_PolicyContentVersion2):
    """As files of version 3 have it."""

    confidence: _Share | None


class PolicyContent(_PolicyContentVersion3):
    """When to switch, for one workload fingerprint."""

    criterion: Literal["kept", "mean"]
    keep: _Share | None
    kept_share: _Share | None
    baseline_kept_share: _Share | None
    speed_up_low: _Ratio | None
    speed_up_high: _Ratio | None
    reason: Annotated[str, Field(min_length=1, max_length=255)] | None


class WorkloadContent(_Content):
    """The job that the policy was found for; null is what nobody recorded."""

    name: _Name
    model: str | None
    data_set: str | None
    loss: str | None
    optimizer: str | None
    total_worker_steps: _WorkerSteps
    batch_size: _Count | None
    learning_rate: float | None
    momentum: float | None
    learning_rate_boundaries: tuple[tuple[int, float], ...] | None
    metric: str | None
    evaluation_interval_worker_steps: _WorkerSteps | None
    workers: _Count
    first_protocol: _Name
    second_protocol: _Name
    reference: _Name
    simulated_cluster: Annotated[str, Field(min_length=1, max_length=64)] | None = None

    @model_serializer(mode="wrap")
    def _dumped(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what only a simulated cluster has: the files of real ones stay as they were."""
        content: dict[str, Any] = dump(self)
        if self.simulated_cluster is None:
            del content["simulated_cluster"]
        return content


class Document(_Content):
    """A timing policy with the workload that it was found for.

    The checksum is the SHA-256 of {"policy": ..., "workload": ...} as JSON with sorted keys and no
    spaces, and the fingerprint that of the workload; a schema cannot check either.
    """

    schema_version: Literal[4]
    checksum: _Checksum
    workload: WorkloadContent
    policy: PolicyContent


class DocumentVersion3(_Content):
    """Without what the policy promises: its criterion was the mean."""

    schema_version: Literal[3]
    checksum: _Checksum
    workload: WorkloadContent
    policy: _PolicyContentVersion3


class DocumentVersion2(_Content):
    """Without the confidence."""

    schema_version: Literal[2]
    checksum: _Checksum
    workload: WorkloadContent
    policy: _PolicyContentVersion2


class DocumentVersion1(_Content):
    """As the first version of the software wrote it: without the workload, too."""

    model_config = ConfigDict(extra="ignore")

    schema_version: Literal[1]
    checksum: str
    policy: _PolicyContentVersion2


def policy_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the policy files that this version writes."""
    schema = Document.model_json_schema()
    parts = schema["$defs"]
    _describe(parts["PolicyContent"], TimingPolicy)
    _describe(parts["WorkloadContent"], WorkloadIdentity)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:syncswitch:timing-policy:{SCHEMA_VERSION}",
        **schema,
    }


def _describe(schema: Mapping[str, Any], record: type) -> None:
    """Adds to each property what the record's docstring says of it."""
    entries = re.findall(r"^        (\w+): ((?:.|\n {12})+)", record.__doc__ or "", re.MULTILINE)
    for name, text in entries:
        description = " ".join(text.split()).replace("None", "null")
        schema["properties"][name]["description"] = description
