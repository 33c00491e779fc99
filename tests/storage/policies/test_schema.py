"""The JSON Schema that we publish says what the software reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from syncswitch.storage.policies import registry as policies
from syncswitch.storage.policies.file import policy_text
from syncswitch.storage.policies.schema import policy_schema
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.job import RegisteredWorkload
from tests.storage.conftest import IDENTITY, POLICY

PUBLISHED = Path(policies.__file__).with_name("policy.schema.json")


@pytest.fixture
def document() -> dict[str, Any]:
    """What a policy file holds."""
    content: dict[str, Any] = json.loads(policy_text(POLICY, RegisteredWorkload(IDENTITY, "it")))
    return content


@pytest.fixture
def validate() -> Callable[[object], None]:
    schema = json.loads(PUBLISHED.read_text())
    checks = jsonschema.Draft202012Validator.FORMAT_CHECKER
    validator = jsonschema.Draft202012Validator(schema, format_checker=checks)
    return validator.validate


def test_the_published_schema_is_that_of_the_model() -> None:
    """`syncswitch-search policy schema` prints what has to be in the file."""
    assert json.loads(PUBLISHED.read_text()) == policy_schema()


def test_it_is_a_schema_with_a_name_and_explanations() -> None:
    schema = policy_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == "urn:syncswitch:timing-policy:1"
    for part in ("PolicyContent", "WorkloadContent"):
        properties = schema["$defs"][part]["properties"]
        silent = {name for name, value in properties.items() if "description" not in value}
        assert silent <= {"reference"}


def test_real_files_are_valid(document: dict[str, Any], validate: Callable[[object], None]) -> None:
    validate(document)
    unknown = replace(
        IDENTITY, model=None, batch_size=None, learning_rate=None, learning_rate_boundaries=None
    )
    other = replace(
        POLICY,
        fingerprint=unknown.fingerprint,
        mean_accuracy=None,
        evidence=(),
        software={},
        confidence=0.97,
        guarded=True,
        keep=0.95,
        kept_share=0.93,
        speed_up_low=1.2,
        reason="saves no time",
        band=Band(0.9, 0.01, 2, (BandPoint(500, 0.85, 0.02),)),
    )
    validate(json.loads(policy_text(other, RegisteredWorkload(unknown, "it"))))


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("policy", "switch_percent", 140),
        ("policy", "fingerprint", "abc"),
        ("policy", "guarded", "yes"),
        ("policy", "band", {"target_accuracy": 0.9}),
        ("policy", "evidence", [{"study": "s"}]),
        ("policy", "surprise", 1),
        ("workload", "workers", 0),
        ("workload", "learning_rate_boundaries", [[500]]),
        ("workload", "name", None),
    ],
)
def test_files_that_are_refused_are_not_valid(
    document: dict[str, Any],
    validate: Callable[[object], None],
    part: str,
    name: str,
    value: object,
) -> None:
    document[part][name] = value
    with pytest.raises(jsonschema.ValidationError):
        validate(document)


@pytest.mark.parametrize("version", [0, 2, "1"])
def test_another_version_is_not_valid(
    document: dict[str, Any], validate: Callable[[object], None], version: object
) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate({**document, "schema_version": version})
