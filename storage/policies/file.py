"""Reads and writes policy files: JSON with a schema version and a checksum.

```
{"schema_version": 2, "checksum": "sha256:...", "workload": {...}, "policy": {...}}
```

The checksum is over the values, so a file may be reformatted but not altered. The workload lets
another database import the policy. `schema` holds the limits of the values; it is imported on
demand, as a lookup does not need pydantic, which takes a while.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncswitch.storage.errors import EXPORT_AGAIN, PolicyError, TooNewError, UserError, one_line
from syncswitch.storage.files import check_plain_file, whole_file
from syncswitch.storage.formats import KEY, PLAN, POLICY, Format
from syncswitch.storage.records.digest import digest_of
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.job import Job, RegisteredWorkload, ScheduledJob, first_rule
from syncswitch.storage.records.policy import TimingPolicy

if TYPE_CHECKING:
    from pydantic import BaseModel

_MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The contents of a policy file.

    Attributes:
        path: Path of the file.
        policy: The policy; its version is that of the registry it came from.
        workload: The workload that it was found for.
    """

    path: Path
    policy: TimingPolicy
    workload: RegisteredWorkload

    @property
    def identity(self) -> ScheduledJob:
        """The job with the protocols of the policy."""
        return ScheduledJob(self.workload.job, self.policy.protocols)


def checked_content(policy: TimingPolicy) -> BaseModel:
    """Returns what a policy file holds; raises PolicyError if it could not be read again."""
    from syncswitch.storage.policies.schema import PolicyContent

    content = _checked(PolicyContent, flat(policy), "timing policy")
    impossible = impossible_accuracy(policy)
    if impossible:
        raise PolicyError(f"impossible timing policy: {impossible}")
    return content


def policy_text(policy: TimingPolicy, workload: RegisteredWorkload) -> str:
    """Returns the text of a policy file.

    Raises PolicyError if a value is impossible, or the policy is for another workload.
    """
    from syncswitch.storage.policies.schema import WorkloadContent

    mismatch = job_mismatch(policy, workload.job)
    if mismatch:
        raise PolicyError(f"impossible timing policy: {mismatch}")
    content = {**flat(workload.job), "reference": workload.reference}
    values = {
        "workload": _checked(WorkloadContent, content, "workload").model_dump(mode="json"),
        "policy": checked_content(policy).model_dump(mode="json"),
    }
    document = {KEY: POLICY.version, "checksum": checksum_of(values), **values}
    return json.dumps(document, indent=2) + "\n"


def write_policy(path: str | Path, policy: TimingPolicy, workload: RegisteredWorkload) -> None:
    """Writes a policy file; readers of the path see the old file or the new one, whole.

    Raises:
        PolicyError: The file cannot be written, or a value is impossible.
    """
    content = policy_text(policy, workload).encode()
    try:
        with whole_file(Path(path), replaces=(b'{\n  "schema_version"',)) as file:
            file.write(content)
    except UserError as error:
        raise PolicyError(error, code="file-unusable") from error


def read_policy_file(path: str | Path) -> PolicyFile:
    """Reads a policy file.

    Raises:
        PolicyError: It cannot be read, is truncated or altered, was written by a newer version in a
            way that this one cannot read, or holds impossible values.
    """
    from pydantic import ValidationError

    from syncswitch.storage.policies.schema import Document, first_fault

    content = json_content(path)
    version = _version(POLICY, content, f"policy file {path}")
    if version is None:
        raise _useless(path, f"has schema version {content.get(KEY)!r}")
    if version == 1:
        content = _of_first_version(content, path)
    try:
        document = Document.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise _useless(path, f"was altered: {first_fault(error)}") from error
    values = document.model_dump()
    policy, job = TimingPolicy.of(values["policy"]), Job.of(values["workload"])
    fault = impossible_accuracy(policy)
    # Of what is there: an older file lacks later fields.
    stated = document.model_dump(mode="json", include={"workload", "policy"}, exclude_unset=True)
    expected = checksum_of(stated)
    if document.checksum != expected:
        fault = fault or (f"its checksum is {document.checksum!r}, that of its values {expected!r}")
    fault = fault or job_mismatch(policy, job)
    if fault:
        raise _useless(path, f"was altered: {fault}")
    workload = RegisteredWorkload(job, values["workload"]["reference"])
    return PolicyFile(Path(path), policy, workload)


def _version(kind: Format, content: Mapping[str, Any], what: str) -> int | None:
    """The version of a file; None if it states none. Raises PolicyError if it is too new."""
    try:
        return kind.check(content[KEY], what)
    except TooNewError as error:
        raise PolicyError(error, code="newer-version") from error
    except (KeyError, ValueError):
        return None


def _of_first_version(content: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """Returns a file of version 1, in which the protocols were part of the job, as one of today."""
    values = {name: content.get(name) for name in ("workload", "policy")}
    try:
        if content.get("checksum") != checksum_of(values):
            raise _useless(path, "was altered: its checksum is not that of its values")
        workload, policy = ({**content[name]} for name in ("workload", "policy"))
        rule = workload.pop("momentum_after_switch", None)
        for name in ("first_protocol", "second_protocol"):
            del workload[name]
        policy["momentum_after_switch"] = first_rule(rule, workload["batch_size"])
        policy["fingerprint"] = Job.of(workload).fingerprint
        policy.setdefault("threshold_runs", 0)
    except (KeyError, TypeError, ValueError) as error:
        raise _useless(path, f"was altered: {one_line(error)}") from error
    values = {"workload": workload, "policy": policy}
    return {KEY: 2, "checksum": checksum_of(values), **values}


def read_plan(path: str | Path, content: dict[str, Any]) -> dict[str, Any]:
    """Returns the run that a plan asks a training command for, as JSON values.

    Raises PolicyError if it holds impossible values, or is too new.
    """
    from pydantic import ValidationError

    from syncswitch.storage.policies.schema import PlanContent, TrialContent, first_fault

    _version(PLAN, content, f"the plan {path}")
    try:
        plan = PlanContent.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise PolicyError(
            f"the plan {path} was altered: {first_fault(error)}",
            remedy="install the same syncswitch where the command trains",
        ) from error
    told = plan.model_dump()["trial"]
    return {name: told[name] for name in TrialContent.model_fields}


def job_mismatch(policy: TimingPolicy, job: Job) -> str | None:
    """Says how a policy contradicts its workload; None if it does not."""
    stated_job = flat(policy.job)
    for name, actual in flat(job.key).items():
        stated = stated_job[name]
        if stated != actual and name not in ("workload", "metric"):  # their names
            return f"{name} {stated!r}, but that of the workload is {actual!r}"
    return None


def impossible_accuracy(policy: TimingPolicy) -> str | None:
    """Says which accuracy of a policy its metric cannot have; None if all are possible."""
    metric, band = policy.job.metric, policy.band
    accuracies = [
        ("target_accuracy", policy.target_accuracy),
        ("mean_accuracy", policy.measured.mean_accuracy),
        *(
            ("converged_accuracy", one.converged_accuracy)
            for one in policy.evidence
            if not one.diverged
        ),
        *([("band: target_accuracy", band.target_accuracy)] if band else []),
        *(("band: accuracy", point.accuracy) for point in (band.curve if band else ())),
    ]
    for name, accuracy in accuracies:
        if accuracy is not None and not metric.is_possible(accuracy):
            negative = ", and stands here as its negative" if metric.is_less_better else ""
            return f"{name} {accuracy!r}, but {metric.name} is {metric.range_text}{negative}"
    return None


def json_content(path: str | Path) -> dict[str, Any]:
    """Reads a policy file or a plan, whatever its values; raises PolicyError if it is neither."""
    try:
        check_plain_file(Path(path), _MOST_BYTES)
        # Some editors put a byte order mark in front.
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PolicyError(
            f"cannot read the policy file {path}: {error.strerror or error}",
            remedy=EXPORT_AGAIN,
            code="file-unusable",
        ) from error
    except UnicodeDecodeError as error:
        raise _useless(path, f"is not UTF-8 text ({error})") from error
    except (ValueError, RecursionError) as error:
        raise _useless(path, f"is truncated or not JSON ({error})") from error
    if not isinstance(content, dict):
        raise _useless(path, "is not a policy file")
    return content


def _useless(path: str | Path, why: str) -> PolicyError:
    return PolicyError(f"policy file {path} {why}", remedy=EXPORT_AGAIN)


def _checked(model: type[BaseModel], content: dict[str, Any], what: str) -> BaseModel:
    from pydantic import ValidationError

    from syncswitch.storage.policies.schema import first_fault

    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise PolicyError(f"impossible {what}: {first_fault(error)}") from error


def checksum_of(content: dict[str, Any]) -> str:
    """Returns the checksum of the workload and the policy in a file."""
    return f"sha256:{digest_of(content)}"
