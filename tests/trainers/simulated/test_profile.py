from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.simulated.profile import (
    ClusterProfile,
    load_profile,
    profile_names,
    write_profile,
)
from tests.failing import fails
from tests.wording import Said

PLAIN: dict[str, Any] = {"compute_seconds": 0.05}
STRAGGLER: dict[str, Any] = {"worker": 1, "start_seconds": 5.0, "duration_seconds": 2.0}

WORKERS, SERVER = "worker_bandwidths_bytes_per_second", "server_bandwidth_bytes_per_second"
DURATIONS = ("latency_seconds", "apply_seconds", "barrier_seconds", "switch_seconds")

# A value of each field that is not its usual one.
OTHER: dict[str, Any] = {
    "compute_seconds": 0.06,
    "compute_variation": 0.2,
    "relative_speeds": (1.0, 0.5),
    "parameter_bytes": 10**8,
    WORKERS: (1.25e9,),
    SERVER: 1.25e9,
    **dict.fromkeys(DURATIONS, 0.1),
    "stragglers": (STRAGGLER,),
}


def test_what_is_written_reads_back_as_the_same(tmp_path: Path) -> None:
    profile = ClusterProfile(**OTHER, description="für \U0001f680")
    write_profile(profile, tmp_path / "profile.json")
    assert load_profile(str(tmp_path / "profile.json")) == profile


def test_the_digest_sees_each_field_but_the_description() -> None:
    assert set(ClusterProfile.model_fields) == {"description", *OTHER}
    others = [{**PLAIN, name: value} for name, value in OTHER.items()]
    slow = {"worker": 2, "start_seconds": 6.0, "duration_seconds": 6.0, "delay_seconds": 0.03}
    for name, value in {**slow, "slowdown": 2.0}.items():
        others.append({**PLAIN, "stragglers": ({**STRAGGLER, name: value},)})
    digests = {ClusterProfile(**fields).digest for fields in (PLAIN, *others)}
    assert len(digests) == 1 + len(others)
    described = ClusterProfile(**PLAIN, description="mine", apply_seconds=0)
    assert described.digest == ClusterProfile(**PLAIN).digest


def test_the_digest_is_the_same_in_every_year() -> None:
    """Fingerprints in databases rest on it."""
    profile = ClusterProfile(**PLAIN, stragglers=(STRAGGLER,))
    assert profile.digest == "bcb4e5aefdb5c8a640304c13d68d03ac4c7382f8753f7e08e9156324052752fd"


class TestWhatIsRefused:
    def message(self, content: str, tmp_path: Path) -> str:
        path = tmp_path / "mine.json"
        path.write_bytes(content.encode(errors="surrogateescape"))
        with pytest.raises(UserError) as error:
            load_profile(str(path))
        text = str(error.value)
        assert "\n" not in text
        assert str(path) in text
        return text

    def test_a_field_is_named_with_its_value(self, tmp_path: Path, said: Said) -> None:
        for changes in (
            {"compute_seconds": 0},
            {"compute_variation": -1},
            {"compute_variation": 11},
            {"relative_speeds": []},
            {"relative_speeds": [1.0, 0.0]},
            {"parameter_bytes": 0},
            {SERVER: 0},
            {WORKERS: [1e9, -1]},
            {WORKERS: [1e16]},
            *({name: -1} for name in DURATIONS),
            {"stragglers": [{**STRAGGLER, "worker": -1}]},
            {"stragglers": [{**STRAGGLER, "start_seconds": -1}]},
            {"stragglers": [{**STRAGGLER, "duration_seconds": 0}]},
            {"stragglers": [{**STRAGGLER, "delay_seconds": -1}]},
            {"stragglers": [STRAGGLER, {**STRAGGLER, "slowdown": 0.5}]},
            {"stragglers": [{**STRAGGLER, "until": 9}]},
            {"stragglers": [{"worker": 1}]},
            {"bandwidth_bytes_per_second": 1e9},
        ):
            said(self.message(json.dumps({**PLAIN, **changes}), tmp_path))

    def test_what_is_no_profile_is_refused(self, tmp_path: Path, said: Said) -> None:
        for number in ("NaN", "-Infinity", "1e999"):
            content = f'{{"compute_seconds": 0.1, "latency_seconds": {number}}}'
            said(self.message(content, tmp_path))
        for content in ("{}", "", "[]", '{"compute_seconds": 0.1,}', "\udcff\udcfe"):
            said(self.message(content, tmp_path))

    def test_without_a_file_the_names_are_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("none.json", "unifrom", "."):
            said.refusal("file-unusable", load_profile, name)

    def test_a_straggler_beyond_the_workers_is_named(self, said: Said) -> None:
        profile = ClusterProfile(**PLAIN, stragglers=(STRAGGLER, {**STRAGGLER, "worker": 4}))
        profile.check_workers(5, "mine.json")
        said.refusal("file-unusable", profile.check_workers, 4, "mine.json")

    def test_where_it_cannot_be_written_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with fails("file-unusable", "file"):
            write_profile(ClusterProfile(**PLAIN), tmp_path / "file" / "profile.json")


def test_those_that_come_with_syncswitch_are_as_they_should_be() -> None:
    assert "uniform" in profile_names()
    digests = set()
    for name in profile_names():
        profile = load_profile(name)
        assert profile.description
        digests.add(profile.digest)
    assert len(digests) == len(profile_names())
