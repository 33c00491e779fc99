from __future__ import annotations

import hashlib
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
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.file import (
    policy_to_dict,
    read_policy_file,
    write_policy,
)
from syncswitch.storage.policies.schema import SCHEMA_VERSION
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.job import RegisteredWorkload, WorkloadIdentity
from syncswitch.storage.records.policy import Evidence, TimingPolicy
from tests.properties import FIXTURES_STAY
from tests.storage.conftest import IDENTITY, POLICY, AtOnce

GOLDEN = Path(__file__).with_name("golden_policy.json")


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
counts = st.integers(1, 2**31 - 1)
worker_steps = st.integers(1, 2**63 - 1)
indices = st.integers(0, 2**31 - 1)
shares = st.floats(0, 1)
percents = st.floats(0, 100)
seconds = st.floats(0, allow_infinity=False)
evidence = st.builds(Evidence, names, indices, percents, indices, shares, st.booleans(), seconds)
points = st.lists(
    st.builds(BandPoint, worker_steps, shares, shares),
    max_size=4,
    unique_by=lambda point: point.worker_step,
).map(lambda found: tuple(sorted(found, key=lambda point: point.worker_step)))
policies = st.builds(
    TimingPolicy,
    fingerprint=st.from_regex("[0-9a-f]{64}", fullmatch=True),
    version=counts,
    workload=names,
    workers=counts,
    total_worker_steps=worker_steps,
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
    evidence=st.lists(
        evidence, max_size=4, unique_by=lambda run: (run.study, run.trial_number)
    ).map(tuple),
    created_at=st.datetimes(timezones=st.just(timezone.utc)).map(lambda time: time.isoformat()),
    software=st.dictionaries(names, names, max_size=3),
    confidence=st.none() | shares,
    guarded=st.booleans(),
    keep=st.none() | shares,
    kept_share=st.none() | shares,
    delivered_share=st.none() | shares,
    baseline_kept_share=st.none() | shares,
    expected_time=st.none() | seconds,
    speed_up_low=st.none() | seconds,
    speed_up_high=st.none() | seconds,
    reason=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255),
    band=st.none() | st.builds(Band, shares, shares, indices, points),
)
reals = st.floats(allow_nan=False, allow_infinity=False)
identities = st.builds(
    WorkloadIdentity,
    name=names,
    model=st.none() | names,
    data_set=st.none() | names,
    loss=st.none() | names,
    optimizer=st.none() | names,
    total_worker_steps=worker_steps,
    batch_size=st.none() | counts,
    learning_rate=st.none() | reals,
    momentum=st.none() | reals,
    learning_rate_boundaries=st.none()
    | st.lists(st.tuples(st.integers(0, 2**53), reals), max_size=3).map(tuple),
    metric=st.none() | names,
    evaluation_interval_worker_steps=st.none() | worker_steps,
    workers=counts,
    first_protocol=names,
    second_protocol=names,
)
workloads = st.builds(RegisteredWorkload, identities, names)


def policy_for(policy: TimingPolicy, identity: WorkloadIdentity) -> TimingPolicy:
    return replace(
        policy,
        fingerprint=identity.fingerprint,
        workers=identity.workers,
        total_worker_steps=identity.total_worker_steps,
        first_protocol=identity.first_protocol,
        second_protocol=identity.second_protocol,
    )


def checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


@FIXTURES_STAY
@given(policy=policies, workload=workloads)
def test_every_policy_survives_as_a_file(
    tmp_path: Path, policy: TimingPolicy, workload: RegisteredWorkload
) -> None:
    policy = policy_for(policy, workload.identity)
    write_policy(tmp_path / "policy.json", policy, workload)
    found = read_policy_file(tmp_path / "policy.json")
    assert found.policy == policy
    assert found.workload == workload
    assert found.path == tmp_path / "policy.json"


def test_the_file_of_a_simulated_job_says_so(tmp_path: Path) -> None:
    simulated = replace(IDENTITY, simulated_cluster="5" * 64)
    workload = RegisteredWorkload(simulated, "digits.py:job")
    path = tmp_path / "policy.json"
    write_policy(path, replace(POLICY, fingerprint=simulated.fingerprint), workload)
    content = json.loads(path.read_text())
    assert content["schema_version"] == SCHEMA_VERSION
    assert content["workload"]["simulated_cluster"] == "5" * 64
    assert read_policy_file(path).workload == workload
    # Nobody makes a real job of it, nor one on another simulated cluster.
    content["workload"]["simulated_cluster"] = None
    path.write_text(json.dumps(content))
    with pytest.raises(PolicyError, match="altered"):
        read_policy_file(path)
    content["checksum"] = checksum({name: content[name] for name in ("workload", "policy")})
    path.write_text(json.dumps(content))
    with pytest.raises(PolicyError, match="altered: fingerprint"):
        read_policy_file(path)


def test_a_file_that_was_written_long_ago_is_read(workload: RegisteredWorkload) -> None:
    """Neither the checksum nor the fingerprint may change while the schema version does not."""
    found = read_policy_file(GOLDEN)
    assert found.workload == workload
    assert found.policy == replace(
        POLICY,
        confidence=0.97,
        guarded=True,
        keep=0.95,
        kept_share=0.93,
        delivered_share=0.98,
        baseline_kept_share=0.99,
        expected_time=0.41,
        speed_up_low=1.5,
        speed_up_high=2.5,
        band=Band(0.9, 0.01, 1, (BandPoint(500, 0.8, 0.0), BandPoint(1000, 0.9, 0.0))),
    )


def test_a_reformatted_file_is_as_good(file: Path) -> None:
    document = json.loads(file.read_text())
    document["policy"]["baseline_seconds"] = 6  # as tools write 6.0
    file.write_text(json.dumps(dict(reversed(document.items())), sort_keys=True, indent=None))
    assert read_policy_file(file).policy == POLICY


def test_whole_numbers_may_be_given_for_real_ones(
    tmp_path: Path, workload: RegisteredWorkload
) -> None:
    whole = replace(POLICY, switch_percent=50, baseline_seconds=6)
    write_policy(tmp_path / "policy.json", whole, workload)
    assert read_policy_file(tmp_path / "policy.json").policy == whole


def test_a_byte_order_mark_is_no_damage(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert read_policy_file(file).policy == POLICY


def test_an_impossible_policy_is_not_written(tmp_path: Path, workload: RegisteredWorkload) -> None:
    with pytest.raises(PolicyError, match=r"switch_percent '140.0'"):
        write_policy(tmp_path / "policy.json", replace(POLICY, switch_percent=140.0), workload)
    with pytest.raises(PolicyError, match="workers 8, but that of the workload is 4"):
        write_policy(tmp_path / "policy.json", replace(POLICY, workers=8), workload)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["no/such/policy.json", "."])
def test_a_place_that_cannot_be_written_is_refused(
    tmp_path: Path, workload: RegisteredWorkload, place: str
) -> None:
    with pytest.raises(PolicyError, match="cannot write the file"):
        write_policy(tmp_path / place, POLICY, workload)
    assert list(tmp_path.iterdir()) == []


def test_others_may_read_the_file(tmp_path: Path, workload: RegisteredWorkload) -> None:
    before = os.umask(0o022)
    try:
        write_policy(tmp_path / "policy.json", POLICY, workload)
    finally:
        os.umask(before)
    assert (tmp_path / "policy.json").stat().st_mode & 0o777 == 0o644


def test_readers_see_whole_files_while_writers_write(
    file: Path, at_once: AtOnce, workload: RegisteredWorkload
) -> None:
    def work(number: int) -> set[int]:
        if number < 2:
            for count in range(30):
                version = number * 30 + count + 1
                write_policy(file, replace(POLICY, version=version), workload)
            return set()
        return {read_policy_file(file).policy.version for _ in range(100)}

    answers = at_once(work, 3)
    assert set.union(*answers) <= set(range(1, 61))
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_a_file_is_read_without_sqlalchemy(file: Path) -> None:
    script = (
        "import sys\n"
        "from syncswitch.storage.policies.file import read_policy_file\n"
        "print(read_policy_file(sys.argv[1]).policy.switch_percent)\n"
        "print(*sorted({'alembic', 'optuna', 'sqlalchemy', 'tensorflow'} & set(sys.modules)))\n"
    )
    output = subprocess.check_output([sys.executable, "-c", script, str(file)], text=True)
    assert output == "12.5\n\n"


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


def test_every_missing_value_is_named(file: Path) -> None:
    original = file.read_text()
    for name in policy_to_dict(POLICY):
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
