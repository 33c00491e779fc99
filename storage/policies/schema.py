"""The schema of policy files, as pydantic models and as the published JSON Schema.

The models have the fields of the records, with limits on their values.
"""

from __future__ import annotations

import itertools
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from syncswitch.storage.formats import POLICY
from syncswitch.storage.records.flat import Column, columns
from syncswitch.storage.records.guard import Band, BandPoint, BelievedBand
from syncswitch.storage.records.job import Job, ScheduledJob
from syncswitch.storage.records.limits import LARGEST_INTEGER, LARGEST_WORKER_STEP
from syncswitch.storage.records.metric import MetricGoal
from syncswitch.storage.records.policy import Evidence, TimingPolicy


class _Content(BaseModel):
    # A command needs one of these models, if any. Fields that a later version has added are kept:
    # the checksum is over them, too.
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, defer_build=True)


def _model(name: str, record: type, meaning: str, **types: Any) -> type[BaseModel]:
    """Makes a model with the fields of a record, all of them required.

    `types` are those of fields that have another type here, or that the record lacks.
    """
    stated = {one.name: one for one in columns(record)}
    hints = {**{field: one.hint for field, one in stated.items()}, **types}
    content: dict[str, Any] = {}
    for field, kind in hints.items():
        content[field] = kind, _described(stated[field]) if field in stated else Field()
    return create_model(name, __base__=_Content, __doc__=meaning, **content)


def _described(column: Column) -> Any:
    said, limits = column.meaning, column.limits
    return Field(
        description=None if said is None else said.replace("None", "null"),
        ge=limits.least,
        le=limits.most,
        min_length=limits.shortest,
        max_length=limits.longest,
        pattern=limits.pattern,
        json_schema_extra=None if limits.form is None else {"format": limits.form},
    )


def _moment(value: str) -> str:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("a time needs a time zone")
    try:
        moment.astimezone(timezone.utc)  # as the registry keeps it
    except OverflowError as error:
        raise ValueError("in UTC the time is not within the years 1 to 9999") from error
    return value


def _each_run_once(runs: tuple[Any, ...]) -> tuple[Any, ...]:
    if len({(run.study, run.trial_number) for run in runs}) < len(runs):
        raise ValueError("a run is named twice")
    return runs


def _ascending(points: tuple[Any, ...]) -> tuple[Any, ...]:
    steps = [point.worker_step for point in points]
    if any(later <= step for step, later in itertools.pairwise(steps)):
        raise ValueError("the worker-steps do not ascend")
    return points


def _measured_or_empty(band: Any) -> Any:
    if band is not None and band.target_accuracy is None and (band.runs or band.curve):
        raise ValueError("there is no target_accuracy, so runs has to be 0 and curve empty")
    return band


EvidenceContent = _model("EvidenceContent", Evidence, "One training run that the policy rests on.")

BandPointContent = _model(
    "BandPointContent", BandPoint, "Tests of the first protocol alone after the same worker-steps."
)

BandContent = _model(
    "BandContent",
    Band,
    "Results of the first protocol alone, which a run is compared with.",
    curve=Annotated[tuple[BandPointContent, ...], AfterValidator(_ascending)],  # type: ignore[valid-type]
)

PolicyContent = _model(
    "PolicyContent",
    TimingPolicy,
    "When to switch, from which protocol to which, for one job.",
    evidence=Annotated[tuple[EvidenceContent, ...], AfterValidator(_each_run_once)],  # type: ignore[valid-type]
    created_at=Annotated[str, AfterValidator(_moment)],
    metric_goal=MetricGoal,
    band=Annotated[BandContent | None, AfterValidator(_measured_or_empty)],
)

WorkloadContent = _model(
    "WorkloadContent",
    Job,
    "The job that the policy was found for; null is what was not recorded.",
    reference=Annotated[str, Field(min_length=1)],
    metric_goal=MetricGoal,
)


class Document(_Content):
    """A timing policy with the workload that it was found for.

    The checksum is the SHA-256 of {"policy": ..., "workload": ...} as JSON with sorted keys and no
    spaces, and the fingerprint that of the workload; a schema cannot check either.
    """

    schema_version: Literal[2]
    checksum: Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
    workload: WorkloadContent  # type: ignore[valid-type]
    policy: PolicyContent  # type: ignore[valid-type]


IdentityContent = _model(
    "IdentityContent", ScheduledJob, "The job that a plan is for.", metric_goal=MetricGoal
)


BelievedBandContent = _model(
    "BelievedBandContent",
    BelievedBand,
    "Results of the first protocol alone, of which more is known than a policy has.",
    curve=tuple[BandPointContent, ...],  # type: ignore[valid-type]
)


class TrialContent(_Content):
    """A run as a plan has it."""

    identity: IdentityContent  # type: ignore[valid-type]
    switch_percent: Annotated[float, Field(ge=0, le=100)]
    seed: int
    band: BelievedBandContent | BandContent | None  # type: ignore[valid-type]
    retry_percents: tuple[Annotated[float, Field(ge=0, le=100)], ...]


class PlanContent(_Content):
    """The file in which a training loop is told its run."""

    schema_version: int = 1
    trial: TrialContent


def policy_schema() -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of policy files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:syncswitch:timing-policy:{POLICY.version}",
        **Document.model_json_schema(),
    }


def largest_integer(name: str) -> int:
    """Returns the largest integer that a column of this name holds in every database."""
    return LARGEST_WORKER_STEP if "worker_step" in name else LARGEST_INTEGER


def first_fault(error: ValidationError) -> str:
    """Describes the first fault in a few words, for example `switch_percent 140.0: ...`."""
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"]) or "policy"
    value = "" if fault["type"] == "missing" else f" {str(fault['input'])[:60]!r}"
    return " ".join(f"{place}{value}: {fault['msg']}".split())
