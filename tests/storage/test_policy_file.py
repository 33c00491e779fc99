from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policy_file import (
    policy_from_dict,
    policy_text,
    policy_to_dict,
    read_policy,
    write_policy,
)
from syncswitch.storage.records import Evidence, TimingPolicy

Run = Callable[[Callable[[int], Any], int], list[Any]]

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
counts = st.integers(1, 2**63)
shares = st.floats(0, 1)
percents = st.floats(0, 100)
seconds = st.floats(0, allow_infinity=False)
evidence = st.builds(
    Evidence, names, st.integers(0), percents, st.integers(0), shares, st.booleans(), seconds
)
policies = st.builds(
    TimingPolicy,
    fingerprint=st.from_regex("[0-9a-f]{64}", fullmatch=True),
    version=counts,
    workload=names,
    workers=counts,
    total_worker_steps=counts,
    first_protocol=names,
    second_protocol=names,
    switch_percent=percents,
    target_accuracy=shares,
    threshold=shares,
    mean_accuracy=st.none() | shares,
    training_seconds=st.none() | seconds,
    baseline_seconds=st.none() | seconds,
    strategy=names,
    study=names,
    evidence=st.lists(evidence, max_size=4).map(tuple),
    created_at=st.datetimes(timezones=st.just(timezone.utc)).map(lambda time: time.isoformat()),
    software=st.dictionaries(names, names, max_size=3),
)


@pytest.fixture
def file(tmp_path: Path, policy: TimingPolicy) -> Path:
    """A policy file as it was written."""
    path = tmp_path / "policy.json"
    write_policy(path, policy)
    return path


def refusal(file: Path) -> str:
    with pytest.raises(PolicyError) as caught:
        read_policy(file)
    message = str(caught.value)
    assert "\n" not in message
    assert str(file) in message
    return message


def changed(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


@given(policy=policies)
def test_every_policy_survives_as_values(policy: TimingPolicy) -> None:
    content = json.loads(json.dumps(policy_to_dict(policy)))
    assert policy_from_dict(content) == policy


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(policy=policies)
def test_every_policy_survives_as_a_file(tmp_path: Path, policy: TimingPolicy) -> None:
    write_policy(tmp_path / "policy.json", policy)
    assert read_policy(tmp_path / "policy.json") == policy


def test_the_values_have_the_fields_of_a_policy(policy: TimingPolicy) -> None:
    content = policy_to_dict(policy)
    assert list(content) == [field.name for field in dataclasses.fields(TimingPolicy)]
    assert list(content["evidence"][0]) == [field.name for field in dataclasses.fields(Evidence)]


def test_the_file_says_its_schema_version(file: Path) -> None:
    document = json.loads(file.read_text())
    assert list(document) == ["schema_version", "checksum", "policy"]
    assert document["schema_version"] == 1


def test_a_reformatted_file_is_as_good(file: Path, policy: TimingPolicy) -> None:
    document = json.loads(file.read_text())
    document["policy"]["baseline_seconds"] = 6  # as tools write 6.0
    file.write_text(json.dumps(dict(reversed(document.items())), sort_keys=True, indent=None))
    assert read_policy(file) == policy


def test_whole_numbers_may_be_given_for_real_ones(tmp_path: Path, policy: TimingPolicy) -> None:
    whole = replace(policy, switch_percent=50, baseline_seconds=6)
    write_policy(tmp_path / "policy.json", whole)
    assert read_policy(tmp_path / "policy.json") == whole


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
        ("version", 0),
        ("version", 1.5),
        ("workers", 0),
        ("fingerprint", "abc"),
        ("created_at", "yesterday"),
        ("created_at", "2026-01-31T12:00:00"),
        ("evidence", [{"study": "s"}]),
        ("evidence", None),
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


@pytest.mark.parametrize("value", [None, "", "sha256:", 1, ["sha256:"]])
def test_another_checksum_is_refused(file: Path, value: object) -> None:
    changed(file, lambda document: document.update(checksum=value))
    assert "its checksum is" in refusal(file)


def test_a_plausible_alteration_is_refused(file: Path) -> None:
    changed(file, lambda document: document["policy"].update(switch_percent=25.0))
    assert "was altered: its checksum is" in refusal(file)
    changed(file, lambda document: document["policy"]["evidence"].pop())
    assert "was altered: its checksum is" in refusal(file)


@pytest.mark.parametrize("version", [0, 2, "1", None, 1.5, True])
def test_another_schema_version_is_refused(file: Path, version: object) -> None:
    changed(file, lambda document: document.update(schema_version=version))
    assert f"has schema version {version!r}, this version of syncswitch allows 1" in refusal(file)


def test_a_file_without_a_policy_is_refused(file: Path) -> None:
    changed(file, lambda document: document.pop("policy"))
    assert "holds no policy" in refusal(file)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.json")
    assert "Is a directory" in refusal(tmp_path)


def test_an_impossible_policy_is_not_written(tmp_path: Path, policy: TimingPolicy) -> None:
    with pytest.raises(PolicyError, match=r"switch_percent '140.0'"):
        write_policy(tmp_path / "policy.json", replace(policy, switch_percent=140.0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["no/such/policy.json", "."])
def test_a_place_that_cannot_be_written_is_refused(
    tmp_path: Path, policy: TimingPolicy, place: str
) -> None:
    with pytest.raises(PolicyError, match="cannot write the policy file"):
        write_policy(tmp_path / place, policy)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_path_that_names_no_file_is_refused(name: str, policy: TimingPolicy) -> None:
    with pytest.raises(PolicyError, match="names no file"):
        write_policy(name, policy)


def test_the_text_is_what_the_file_holds(file: Path, policy: TimingPolicy) -> None:
    assert policy_text(policy) == file.read_text(encoding="utf-8")


def test_others_may_read_the_file(tmp_path: Path, policy: TimingPolicy) -> None:
    before = os.umask(0o022)
    try:
        write_policy(tmp_path / "policy.json", policy)
    finally:
        os.umask(before)
    assert (tmp_path / "policy.json").stat().st_mode & 0o777 == 0o644


def test_readers_see_whole_files_while_writers_write(
    file: Path, at_once: Run, policy: TimingPolicy
) -> None:
    def work(number: int) -> set[int]:
        if number < 3:
            for count in range(60):
                write_policy(file, replace(policy, version=number * 60 + count + 1))
            return set()
        return {read_policy(file).version for _ in range(200)}

    answers = at_once(work, 5)
    assert set.union(*answers) <= set(range(1, 181))
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_a_file_is_read_without_sqlalchemy(file: Path) -> None:
    script = (
        "import sys\n"
        "from syncswitch.storage.policy_file import read_policy\n"
        "print(read_policy(sys.argv[1]).switch_percent)\n"
        "print(*sorted({'alembic', 'optuna', 'sqlalchemy', 'tensorflow'} & set(sys.modules)))\n"
    )
    output = subprocess.check_output([sys.executable, "-c", script, str(file)], text=True)
    assert output == "12.5\n\n"
