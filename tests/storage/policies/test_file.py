from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from syncswitch.storage.errors import ErrorCode, PolicyError
from syncswitch.storage.policies import schema
from syncswitch.storage.policies.file import (
    PolicyFile,
    checksum_of,
    policy_text,
    read_policy_file,
    write_policy,
)
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.job import RegisteredWorkload
from tests.records import changed
from tests.storage.conftest import IDENTITY, POLICY
from tests.wording import Said

WORKLOAD = RegisteredWorkload(IDENTITY.job, "digits.py:job")
VERSIONS = [Path(__file__).with_name(f"golden_policy_{version}.json") for version in (1, 2)]


@pytest.mark.parametrize("path", VERSIONS, ids=["1", "2"])
def test_a_file_that_was_written_long_ago_is_read(path: Path) -> None:
    """Neither the checksum nor the fingerprint may change while the schema version does not."""
    found = read_policy_file(path)
    assert found.workload == WORKLOAD
    assert found.policy == changed(
        POLICY,
        confidence=0.97,
        guarded=True,
        min_kept_share=0.95,
        kept_share=0.93,
        delivered_share=0.98,
        baseline_kept_share=0.99,
        expected_time=0.41,
        speed_up_low=1.5,
        speed_up_high=2.5,
        band=Band(0.9, 0.01, 1, (BandPoint(500, 0.8, 0.0), BandPoint(1000, 0.9, 0.0))),
    )


def test_what_a_later_version_has_added_is_passed_over(tmp_path: Path) -> None:
    """The checksum is over it, and so it is not taken for altered."""
    written = json.loads(VERSIONS[-1].read_text())
    policy, later = written["policy"], {"later": {"one": [1, 2.5, None]}}
    band = {**policy["band"], **later}
    band["curve"] = [{**point, **later} for point in band["curve"]]
    evidence = [{**run, **later} for run in policy["evidence"]]
    values = {
        "workload": {**written["workload"], **later},
        "policy": {**policy, **later, "band": band, "evidence": evidence},
    }
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({**written, **later, **values, "checksum": checksum_of(values)}))
    found, known = read_policy_file(path), read_policy_file(VERSIONS[-1])
    assert (found.policy, found.workload) == (known.policy, known.workload)


def test_a_file_is_read_without_sqlalchemy(file: Path) -> None:
    script = (
        "import sys\n"
        "from syncswitch.storage.policies.file import read_policy_file\n"
        "print(read_policy_file(sys.argv[1]).policy.switch_percent)\n"
        "print(*sorted({'alembic', 'optuna', 'sqlalchemy', 'tensorflow'} & set(sys.modules)))\n"
    )
    output = subprocess.check_output([sys.executable, "-c", script, str(file)], text=True)
    assert output == "12.5\n\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A policy file as it was written."""
    path = tmp_path / "policy.json"
    write_policy(path, POLICY, WORKLOAD)
    return path


def test_a_reformatted_file_is_as_good(file: Path) -> None:
    document = json.loads(file.read_text())
    document["policy"]["baseline_seconds"] = 6  # as tools write 6.0
    text = json.dumps(dict(reversed(document.items())), sort_keys=True, indent=None)
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())  # as some editors do
    assert read_policy_file(file).policy == POLICY


def test_an_impossible_policy_is_not_written(tmp_path: Path) -> None:
    for place, change, said in (
        ("policy.json", {"switch_percent": 140.0}, "switch_percent '140.0'"),
        ("policy.json", {"workers": 8}, "workers 8, but that of the workload is 4"),
        ("no/such/policy.json", {}, "cannot write the file"),
    ):
        with pytest.raises(PolicyError, match=said):
            write_policy(tmp_path / place, changed(POLICY, **change), WORKLOAD)
    assert list(tmp_path.iterdir()) == []


def band(*points: tuple[int, float, float]) -> dict[str, Any]:
    names = ("worker_step", "accuracy", "deviation")
    curve = [dict(zip(names, point, strict=True)) for point in points]
    return {"target_accuracy": 0.9, "threshold": 0.01, "runs": 1, "curve": curve}


def refusal(file: Path, code: ErrorCode = "policy-damaged") -> str:
    with pytest.raises(PolicyError) as caught:
        read_policy_file(file)
    assert caught.value.code == code
    message = str(caught.value)
    assert "\n" not in message
    assert str(file) in message
    return message


def test_what_is_no_policy_file_is_refused(file: Path) -> None:
    content = file.read_bytes().rstrip()
    for length in range(0, len(content), 7):
        file.write_bytes(content[:length])
        assert "truncated or not JSON" in refusal(file)
    for other in (b"[]", b"1", b"null", b'"text"', b"{}", b"[" * 100_000):
        file.write_bytes(other)
        assert "export it again" in refusal(file)
    file.write_text(content.decode(), encoding="utf-16")
    assert "is not UTF-8 text" in refusal(file)
    assert "No such file" in refusal(file.with_name("none.json"), "file-unusable")
    assert "Is a directory" in refusal(file.parent, "file-unusable")


def test_an_altered_file_is_refused(file: Path, said: Said) -> None:
    """The limits of each field stand in the published schema, which is that of the model."""
    content = file.read_text()
    for place, value in (
        *(("policy.switch_percent", value) for value in (140, -1, math.nan, "50", None, True, 25)),
        ("policy.training_seconds", math.inf),
        ("policy.target_accuracy", 1.2),
        ("policy.band", {"target_accuracy": 0.9}),
        ("policy.band", band((500, 1.8, 0.0))),
        ("policy.band", band((500, 0.8, 0.0), (500, 0.9, 0.0))),
        ("policy.band", band((500, 0.8, 0.0), (400, 0.9, 0.0))),
        ("policy.band", {**band(), "target_accuracy": None}),
        ("policy.band", {**band((500, 0.8, 0.0)), "target_accuracy": None, "runs": 0}),
        ("policy.fingerprint", "abc"),
        ("policy.created_at", "yesterday"),
        ("policy.created_at", "2026-01-31T12:00:00"),
        ("policy.created_at", "0001-01-01T00:00:00+14:00"),
        ("policy.created_at", "9999-12-31T23:59:59-14:00"),
        ("policy.evidence", [asdict(POLICY.evidence[0])] * 2),
        ("policy.evidence", []),
        ("policy.surprise", 1),
        *(("checksum", value) for value in (None, "", "sha256:", 1, ["sha256:"])),
        ("checksum", "sha256:" + "0" * 64),
        ("workload.batch_size", 2**31),
        ("workload.learning_rate_boundaries", [[1]]),
        ("workload.surprise", 1),
        ("workload.model", "another one"),
        ("workload.reference", "other.py:job"),
        *(("schema_version", value) for value in (0, 3, "2", 2.5, True)),
    ):
        part, _, name = place.rpartition(".")
        document = json.loads(content)
        (document[part] if part else document)[name] = value
        file.write_text(json.dumps(document))
        is_newer = (name, value) == ("schema_version", 3)
        said(f"{place}: {refusal(file, 'newer-version' if is_newer else 'policy-damaged')}")


def test_a_workload_that_the_policy_is_not_for_is_refused_even_with_a_new_checksum(
    file: Path, said: Said
) -> None:
    content = file.read_text()
    for part, name, value in (
        ("workload", "learning_rate", 0.5),
        ("workload", "simulated_cluster", "5" * 64),
        ("policy", "fingerprint", "f" * 64),
        ("policy", "workers", 8),
        ("policy", "total_worker_steps", 9),
    ):
        document = json.loads(content)
        document[part][name] = value
        values = {name: document[name] for name in ("workload", "policy")}
        canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
        document["checksum"] = "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
        file.write_text(json.dumps(document))
        said(refusal(file))


PUBLISHED = Path(schema.__file__).with_name("policy.schema.json")


def test_the_published_schema_is_that_of_the_model() -> None:
    """`syncswitch-search policy schema` prints what has to be in the file."""
    assert json.loads(PUBLISHED.read_text()) == schema.policy_schema()


def test_nothing_of_it_rests_on_docstrings() -> None:
    script = "from syncswitch.storage.policies.schema import *; print(json.dumps(policy_schema()))"
    words = [sys.executable, "-OO", "-c", f"import json; {script}"]
    printed = subprocess.check_output(words, text=True)
    assert (
        json.loads(printed)["$defs"]["PolicyContent"]["properties"]
        == (json.loads(PUBLISHED.read_text())["$defs"]["PolicyContent"]["properties"])
    )


def test_it_is_a_schema_with_a_name_and_explanations() -> None:
    published = schema.policy_schema()
    jsonschema.Draft202012Validator.check_schema(published)
    assert published["$id"] == "urn:syncswitch:timing-policy:2"
    for part in ("PolicyContent", "WorkloadContent"):
        properties = published["$defs"][part]["properties"]
        silent = {name for name, value in properties.items() if "description" not in value}
        assert silent <= {"reference"}


LARGE = changed(
    IDENTITY,
    name="ä\0\u2028\\",
    workers=2**31 - 1,
    total_worker_steps=2**63 - 1,
    learning_rate_boundaries=((2**53, 1e-300), (2**53 + 1, 0.1 + 0.2)),
    simulated_cluster="5" * 64,
)
UNKNOWN = changed(
    IDENTITY,
    momentum=None,
    evaluation_interval_worker_steps=None,
    **dict.fromkeys(("model", "data_set", "loss", "optimizer", "metric")),
    **dict.fromkeys(("batch_size", "learning_rate", "learning_rate_boundaries")),
)
CERTAIN = changed(
    POLICY,
    **flat(UNKNOWN.job.key),
    mean_accuracy=None,
    training_seconds=None,
    baseline_seconds=None,
    evidence=(),
    software={},
    reason="saves no time",
)
BOLD = changed(
    POLICY,
    **flat(LARGE.job.key),
    version=2**31 - 1,
    guarded=True,
    min_kept_share=0.1 + 0.2,
    speed_up_low=1e-300,
    speed_up_high=1e300,
    band=Band(0.9, 0.01, 2, (BandPoint(500, 0.85, 0.02),)),
)


def test_what_is_written_is_valid_and_read_as_it_was(tmp_path: Path) -> None:
    checks = jsonschema.Draft202012Validator.FORMAT_CHECKER
    published = json.loads(PUBLISHED.read_text())
    validate = jsonschema.Draft202012Validator(published, format_checker=checks).validate
    path = tmp_path / "policy.json"
    unmeasured = replace(POLICY, band=Band(None, 0.0))
    for policy, identity in (
        (POLICY, IDENTITY),
        (CERTAIN, UNKNOWN),
        (BOLD, LARGE),
        (unmeasured, IDENTITY),
    ):
        workload = RegisteredWorkload(identity.job, "digits.py:job")
        write_policy(path, policy, workload)
        assert read_policy_file(path) == PolicyFile(path, policy, workload)
        validate(json.loads(path.read_text()))
    document = json.loads(policy_text(POLICY, WORKLOAD))
    with pytest.raises(jsonschema.ValidationError):
        validate({**document, "policy": {**document["policy"], "switch_percent": 140}})
