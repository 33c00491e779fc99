"""Policy files that were cut, altered or forged, or never were any."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.file import (
    policy_to_dict,
    read_policy_file,
)
from syncswitch.storage.records.policy import TimingPolicy

RUN = {
    "study": "s",
    "trial_number": 0,
    "switch_percent": 50.0,
    "replicate": 0,
    "converged_accuracy": 0.9,
    "diverged": False,
    "training_seconds": 1.0,
}


def band(*points: tuple[int, float, float]) -> dict[str, Any]:
    names = ("worker_step", "accuracy", "deviation")
    curve = [dict(zip(names, point, strict=True)) for point in points]
    return {"target_accuracy": 0.9, "threshold": 0.01, "runs": 1, "curve": curve}


def checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def refusal(file: Path) -> str:
    with pytest.raises(PolicyError) as caught:
        read_policy_file(file)
    message = str(caught.value)
    assert "\n" not in message
    assert str(file) in message
    return message


def changed(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def test_a_file_in_another_encoding_is_named_as_such(file: Path) -> None:
    file.write_text(file.read_text(), encoding="utf-16")
    message = refusal(file)
    assert "is not UTF-8 text" in message
    assert "truncated" not in message


def test_a_file_cut_anywhere_is_refused(file: Path) -> None:
    content = file.read_bytes().rstrip()
    for length in range(0, len(content), 7):
        file.write_bytes(content[:length])
        assert "truncated or not JSON" in refusal(file)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"[]", b"1", b"null", b'"text"', b"{}", b"[" * 100_000]
)
def test_a_file_of_another_kind_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert "syncswitch-search policy export" in refusal(file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("switch_percent", 140),
        ("switch_percent", -1),
        ("switch_percent", float("nan")),
        ("switch_percent", "50"),
        ("switch_percent", None),
        ("switch_percent", True),
        ("training_seconds", float("inf")),
        ("target_accuracy", 1.2),
        ("threshold", -0.01),
        ("confidence", 1.01),
        ("confidence", "0.97"),
        ("guarded", 1),
        ("keep", 95),
        ("kept_share", 1.01),
        ("delivered_share", 1.01),
        ("baseline_kept_share", -0.01),
        ("expected_time", -0.01),
        ("speed_up_low", -1.0),
        ("speed_up_high", float("inf")),
        ("reason", ""),
        ("reason", "x" * 256),
        ("band", {"target_accuracy": 0.9}),
        ("band", band((-1, 0.8, 0.0))),
        ("band", band((500, 0.8, -0.1))),
        ("band", band((500, 1.8, 0.0))),
        ("band", band((500, 0.8, 0.0), (500, 0.9, 0.0))),
        ("band", band((500, 0.8, 0.0), (400, 0.9, 0.0))),
        ("version", 0),
        ("version", 1.5),
        ("workers", 0),
        ("fingerprint", "abc"),
        ("created_at", "yesterday"),
        ("created_at", "2026-01-31T12:00:00"),
        ("created_at", "0001-01-01T00:00:00+14:00"),
        ("created_at", "9999-12-31T23:59:59-14:00"),
        ("evidence", [{"study": "s"}]),
        ("evidence", None),
        ("evidence", [RUN, RUN]),
        ("workers", 2**31),
        ("software", {"tensorflow": 2}),
        ("first_protocol", ""),
        ("surprise", 1),
    ],
)
def test_nonsense_is_refused_by_name(file: Path, name: str, value: object) -> None:
    changed(file, lambda document: document["policy"].update({name: value}))
    message = refusal(file)
    assert "was altered" in message
    assert name in message


def test_every_missing_value_is_named(file: Path, policy: TimingPolicy) -> None:
    original = file.read_text()
    for name in policy_to_dict(policy):
        document = json.loads(original)
        del document["policy"][name]
        file.write_text(json.dumps(document))
        assert f"{name}: Field required" in refusal(file)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        *(("checksum", value, "checksum") for value in (None, "", "sha256:", 1, ["sha256:"])),
        ("checksum", "sha256:" + "0" * 64, "its checksum is"),
        ("policy.switch_percent", 25.0, "its checksum is"),
        ("policy.evidence", [RUN], "its checksum is"),
        ("workload.name", "", "workload.name ''"),
        ("workload.workers", 0, "workload.workers '0'"),
        ("workload.batch_size", 0, "workload.batch_size '0'"),
        ("workload.batch_size", 2**31, "workload.batch_size '2147483648'"),
        ("workload.total_worker_steps", 2**63, "workload.total_worker_steps"),
        ("workload.learning_rate", "0.1", "workload.learning_rate '0.1'"),
        ("workload.learning_rate_boundaries", [[1]], "workload.learning_rate_boundaries.0.1"),
        ("workload.surprise", 1, "workload.surprise"),
        ("workload.model", "another one", "its checksum is"),
        ("workload.name", "another name", "its checksum is"),
        ("workload.reference", "other.py:job", "its checksum is"),
        ("surprise", 1, "surprise '1': Extra inputs are not permitted"),
    ],
)
def test_an_altered_file_is_refused(file: Path, place: str, value: object, said: str) -> None:
    part, _, name = place.rpartition(".")
    changed(file, lambda document: (document[part] if part else document).update({name: value}))
    message = refusal(file)
    assert "was altered" in message
    assert said in message


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("workload", {"learning_rate": 0.5}, "fingerprint '"),
        ("policy", {"fingerprint": "f" * 64}, "fingerprint 'ffff"),
        ("policy", {"workers": 8}, "workers 8, but that of the workload is 4"),
        ("policy", {"total_worker_steps": 9}, "total_worker_steps 9"),
        ("policy", {"second_protocol": "ssp"}, "second_protocol 'ssp'"),
    ],
)
def test_a_workload_that_the_policy_is_not_for_is_refused_even_with_a_new_checksum(
    file: Path, part: str, change: dict[str, Any], said: str
) -> None:
    def forge(document: dict[str, Any]) -> None:
        document[part].update(change)
        values = {name: document[name] for name in ("workload", "policy")}
        document["checksum"] = checksum(values)

    changed(file, forge)
    assert f"was altered: {said}" in refusal(file)


@pytest.mark.parametrize("version", [0, 2, "1", None, 1.5, True])
def test_another_schema_version_is_refused(file: Path, version: object) -> None:
    changed(file, lambda document: document.update(schema_version=version))
    said = f"has schema version {version!r}, this version of syncswitch allows 1;"
    assert said in refusal(file)


@pytest.mark.parametrize("part", ["policy", "workload", "checksum"])
def test_a_file_without_one_of_its_parts_is_refused(file: Path, part: str) -> None:
    changed(file, lambda document: document.pop(part))
    assert f"{part}: Field required" in refusal(file)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.json")
    assert "Is a directory" in refusal(tmp_path)
