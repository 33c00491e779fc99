"""A timing policy as a file: JSON with a schema version and a checksum.

```
{"schema_version": 4, "checksum": "sha256:...", "workload": {...}, "policy": {...}}
```

The checksum is over the values, so a file may be reformatted but not altered. With the workload
another database can take the policy; `simulated_cluster` is there only where it was a simulated
one. Older files are still read: those of version 3 lack what the policy promises, those of version
2 also its confidence, and those of version 1 the workload, too.
`policy_model` says what the values may be.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from syncswitch.storage.errors import PolicyError, UserError
from syncswitch.storage.files import check_plain_file, whole_file
from syncswitch.storage.policies.schema import (
    SCHEMA_VERSION,
    Document,
    DocumentVersion1,
    DocumentVersion2,
    DocumentVersion3,
    PolicyContent,
    WorkloadContent,
)
from syncswitch.storage.records.job import RegisteredWorkload, WorkloadIdentity
from syncswitch.storage.records.policy import Evidence, TimingPolicy

__all__ = [
    "SCHEMA_VERSION",
    "PolicyFile",
    "job_mismatch",
    "policy_from_dict",
    "policy_text",
    "policy_to_dict",
    "read_policy_file",
    "write_policy",
]

_AnyDocument = DocumentVersion1 | DocumentVersion2 | DocumentVersion3 | Document
_VERSIONS: dict[int, type[_AnyDocument]] = {
    1: DocumentVersion1,
    2: DocumentVersion2,
    3: DocumentVersion3,
    4: Document,
}
_MOST_BYTES = 256 << 20
_EXPORT = "export it again with `syncswitch-search policy export`"


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """What a policy file holds.

    Attributes:
        path: Where it was read from.
        policy: The policy; its version is that of the registry it came from.
        workload: What it was found for; None in a file of version 1.
    """

    path: Path
    policy: TimingPolicy
    workload: RegisteredWorkload | None


def policy_to_dict(policy: TimingPolicy) -> dict[str, Any]:
    """The policy as JSON values.

    Raises:
        PolicyError: A value is impossible; a file with it could not be read again.
    """
    content = {name: getattr(policy, name) for name in TimingPolicy.__dataclass_fields__}
    content["evidence"] = tuple(asdict(evidence) for evidence in policy.evidence)
    content["software"] = dict(policy.software)
    return _dumped(PolicyContent, content, "timing policy")


def policy_from_dict(content: dict[str, Any]) -> TimingPolicy:
    """The policy from JSON values.

    Raises:
        PolicyError: A value is missing, unknown or impossible.
    """
    try:
        return _policy(PolicyContent.model_validate_json(json.dumps(content)))
    except ValidationError as error:
        raise PolicyError(f"impossible timing policy: {_first(error)}") from error


def policy_text(policy: TimingPolicy, workload: RegisteredWorkload) -> str:
    """What a policy file holds.

    Raises:
        PolicyError: A value is impossible, or the policy is for another workload.
    """
    mismatch = job_mismatch(policy, workload.identity)
    if mismatch:
        raise PolicyError(f"impossible timing policy: {mismatch}")
    content = {**asdict(workload.identity), "reference": workload.reference}
    values = {
        "workload": _dumped(WorkloadContent, content, "workload"),
        "policy": policy_to_dict(policy),
    }
    document = {"schema_version": SCHEMA_VERSION, "checksum": _checksum(values), **values}
    return json.dumps(document, indent=2) + "\n"


def write_policy(path: str | Path, policy: TimingPolicy, workload: RegisteredWorkload) -> None:
    """Writes a policy file; whoever reads the path sees the old file or the new one, whole.

    Raises:
        PolicyError: The file cannot be written, or a value is impossible.
    """
    content = policy_text(policy, workload).encode()
    try:
        with whole_file(Path(path), replaces=(b'{\n  "schema_version"',)) as file:
            file.write(content)
    except UserError as error:
        raise PolicyError(str(error)) from error


def read_policy_file(path: str | Path) -> PolicyFile:
    """Reads a policy file.

    Raises:
        PolicyError: It cannot be read, is truncated or altered, has another schema version, or
            holds impossible values.
    """
    content = _parsed(path)
    version = content.get("schema_version")
    if type(version) is not int or version not in _VERSIONS:  # JSON's true equals 1
        raise PolicyError(
            f"policy file {path} has schema version {version!r}, this version of syncswitch allows"
            f" {min(_VERSIONS)} to {max(_VERSIONS)}; upgrade syncswitch, or {_EXPORT}"
        )
    try:
        document = _VERSIONS[version].model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise PolicyError(f"policy file {path} was altered: {_first(error)}; {_EXPORT}") from error
    expected = _checksum(_checked_values(document))
    if document.checksum != expected:
        raise PolicyError(
            f"policy file {path} was altered: its checksum is {document.checksum!r}, that of"
            f" its values {expected!r}; {_EXPORT}"
        )
    policy = _policy(document.policy)
    if isinstance(document, DocumentVersion1):
        return PolicyFile(Path(path), policy, None)
    workload = _workload(document.workload)
    mismatch = job_mismatch(policy, workload.identity)
    if mismatch:
        raise PolicyError(f"policy file {path} was altered: {mismatch}; {_EXPORT}")
    return PolicyFile(Path(path), policy, workload)


def job_mismatch(policy: TimingPolicy, identity: WorkloadIdentity) -> str | None:
    """In what a policy contradicts its workload, in words; None where it does not."""
    for name in (
        "fingerprint",
        "workers",
        "total_worker_steps",
        "first_protocol",
        "second_protocol",
    ):
        stated, actual = getattr(policy, name), getattr(identity, name)
        if stated != actual:
            return f"{name} {stated!r}, but that of the workload is {actual!r}"
    return None


def _parsed(path: str | Path) -> dict[str, Any]:
    try:
        check_plain_file(Path(path), _MOST_BYTES)
        # Some editors put a byte order mark in front.
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PolicyError(
            f"cannot read the policy file {path}: {error.strerror or error};"
            f" `syncswitch-search policy export` writes one"
        ) from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"policy file {path} is not UTF-8 text ({error}); {_EXPORT}") from error
    except (ValueError, RecursionError) as error:
        raise PolicyError(
            f"policy file {path} is truncated or not JSON ({error}); {_EXPORT}"
        ) from error
    if not isinstance(content, dict):
        raise PolicyError(f"policy file {path} is not a policy file; {_EXPORT}")
    return content


def _policy(content: BaseModel) -> TimingPolicy:
    values = content.model_dump()
    values["evidence"] = tuple(Evidence(**evidence) for evidence in values["evidence"])
    return TimingPolicy(**values)


def _workload(content: WorkloadContent) -> RegisteredWorkload:
    names = [field.name for field in fields(WorkloadIdentity)]
    identity = WorkloadIdentity(**{name: getattr(content, name) for name in names})
    return RegisteredWorkload(identity, content.reference)


def _dumped(model: type[BaseModel], content: dict[str, Any], what: str) -> dict[str, Any]:
    try:
        return model.model_validate(content).model_dump(mode="json")
    except ValidationError as error:
        raise PolicyError(f"impossible {what}: {_first(error)}") from error


def _checked_values(document: _AnyDocument) -> dict[str, Any]:
    """What the checksum is over."""
    if isinstance(document, DocumentVersion1):
        return document.policy.model_dump(mode="json")
    return document.model_dump(mode="json", include={"workload", "policy"})


def _checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _first(error: ValidationError) -> str:
    """The first fault in a few words, for example `switch_percent 140.0: ...`."""
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"]) or "policy"
    value = "" if fault["type"] == "missing" else f" {str(fault['input'])[:60]!r}"
    return " ".join(f"{place}{value}: {fault['msg']}".split())
