"""A timing policy as a file: JSON with a schema version and a checksum.

```
{"schema_version": 1, "checksum": "sha256:...", "policy": {...}}
```

The checksum is over the policy's values, so a file may be reformatted but not altered.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from syncswitch.storage.errors import PolicyError
from syncswitch.storage.records import Evidence, TimingPolicy

__all__ = [
    "SCHEMA_VERSION",
    "policy_from_dict",
    "policy_text",
    "policy_to_dict",
    "read_policy",
    "write_policy",
]

SCHEMA_VERSION = 1

_EXPORT = "export it again with `syncswitch-search policy export`"


def _is_moment(value: str) -> str:
    if datetime.fromisoformat(value).tzinfo is None:
        raise ValueError("a time needs a time zone")
    return value


_Name = Annotated[str, Field(min_length=1)]
_Percent = Annotated[float, Field(ge=0, le=100)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Seconds = Annotated[float, Field(ge=0)]
_Count = Annotated[int, Field(ge=1)]
_Index = Annotated[int, Field(ge=0)]


class _Content(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _EvidenceContent(_Content):
    study: _Name
    trial_number: _Index
    switch_percent: _Percent
    replicate: _Index
    converged_accuracy: _Share
    diverged: bool
    training_seconds: _Seconds


class _PolicyContent(_Content):
    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    version: _Count
    workload: _Name
    workers: _Count
    total_worker_steps: _Count
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
    evidence: tuple[_EvidenceContent, ...]
    created_at: Annotated[str, AfterValidator(_is_moment)]
    software: dict[str, str]


_ADAPTER = TypeAdapter(_PolicyContent)


def policy_to_dict(policy: TimingPolicy) -> dict[str, Any]:
    """The policy as JSON values.

    Raises:
        PolicyError: A value is impossible; a file with it could not be read again.
    """
    content = {name: getattr(policy, name) for name in TimingPolicy.__dataclass_fields__}
    content["evidence"] = tuple(asdict(evidence) for evidence in policy.evidence)
    content["software"] = dict(policy.software)
    try:
        return _ADAPTER.validate_python(content).model_dump(mode="json")
    except ValidationError as error:
        raise PolicyError(f"impossible timing policy: {_first(error)}") from error


def policy_from_dict(content: dict[str, Any]) -> TimingPolicy:
    """The policy from JSON values.

    Raises:
        PolicyError: A value is missing, unknown or impossible.
    """
    try:
        checked = _ADAPTER.validate_json(json.dumps(content))
    except ValidationError as error:
        raise PolicyError(f"impossible timing policy: {_first(error)}") from error
    fields = checked.model_dump()
    fields["evidence"] = tuple(Evidence(**evidence) for evidence in fields["evidence"])
    return TimingPolicy(**fields)


def policy_text(policy: TimingPolicy) -> str:
    """What a policy file holds.

    Raises:
        PolicyError: A value is impossible.
    """
    content = policy_to_dict(policy)
    document = {
        "schema_version": SCHEMA_VERSION,
        "checksum": _checksum(content),
        "policy": content,
    }
    return json.dumps(document, indent=2) + "\n"


def write_policy(path: str | Path, policy: TimingPolicy) -> None:
    """Writes a policy file; whoever reads the path sees the old file or the new one, whole.

    Raises:
        PolicyError: The file cannot be written.
    """
    text = policy_text(policy)
    path = Path(path)
    if not path.name:
        raise PolicyError(
            f"cannot write the policy file {str(path)!r}: that names no file;"
            f" name a file in a directory that exists and is writable"
        )
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        try:
            with temporary.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise PolicyError(
            f"cannot write the policy file {path}: {error.strerror or error};"
            f" name a file in a directory that exists and is writable"
        ) from error


def read_policy(path: str | Path) -> TimingPolicy:
    """Reads a policy file.

    Raises:
        PolicyError: It cannot be read, is truncated or altered, has another schema version, or
            holds impossible values.
    """
    document = _parsed(path)
    version = document.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:  # JSON's true equals 1
        raise PolicyError(
            f"policy file {path} has schema version {version!r}, this version of syncswitch allows"
            f" {SCHEMA_VERSION}; upgrade syncswitch, or {_EXPORT}"
        )
    try:
        policy = policy_from_dict(document["policy"])
    except KeyError as error:
        raise PolicyError(f"policy file {path} holds no policy; {_EXPORT}") from error
    except PolicyError as error:
        raise PolicyError(f"policy file {path} was altered: {error}; {_EXPORT}") from error
    expected = _checksum(policy_to_dict(policy))
    if document.get("checksum") != expected:
        raise PolicyError(
            f"policy file {path} was altered: its checksum is {document.get('checksum')!r}, that of"
            f" its values {expected!r}; {_EXPORT}"
        )
    return policy


def _parsed(path: str | Path) -> dict[str, Any]:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(
            f"cannot read the policy file {path}: {error.strerror or error};"
            f" `syncswitch-search policy export` writes one"
        ) from error
    except (ValueError, RecursionError) as error:
        raise PolicyError(
            f"policy file {path} is truncated or not JSON ({error}); {_EXPORT}"
        ) from error
    if not isinstance(document, dict):
        raise PolicyError(f"policy file {path} is not a policy file; {_EXPORT}")
    return document


def _checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _first(error: ValidationError) -> str:
    """The first fault in a few words, for example `switch_percent 140.0: ...`."""
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"]) or "policy"
    value = "" if fault["type"] == "missing" else f" {str(fault['input'])[:60]!r}"
    return " ".join(f"{place}{value}: {fault['msg']}".split())
