from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Invoke, error_line

from syncswitch.trainers.simulated.profile import load_profile, profile_names


def test_the_profiles_are_listed_with_what_they_are(invoke: Invoke) -> None:
    text = invoke("profile", "list").stdout
    found = json.loads(invoke("profile", "list", "--json").stdout)
    assert list(found) == profile_names()
    for name, description in found.items():
        assert f"{name}: {description}" in text
    shown = json.loads(invoke("profile", "show", "uniform").stdout)
    assert (shown["compute_seconds"], shown["stragglers"]) == (0.05, [])


def test_times_of_protocols_and_of_switch_points(invoke: Invoke) -> None:
    short = ("--worker-steps", "800", "--seeds", "1")
    words = ("profile", "times", "heterogeneous", "--protocols", "bsp,ssp:3,asp", *short)
    alone = json.loads(invoke(*words, "--json").stdout)
    assert [row["run"] for row in alone] == ["bsp", "ssp:3", "asp"]
    speeds = [row["times_as_fast"] for row in alone]
    assert speeds == sorted(speeds)
    assert speeds[0] == 1.0
    text = invoke("profile", "times", "sync-switch-resnet32", "--at", "100,50%,0", *short).stdout
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["100", "50", "0"]


def test_a_profile_is_calibrated_from_recorded_runs(
    invoke: Invoke, tmp_path: Path, published: Path
) -> None:
    invoke("import", str(published / "runs.csv"))
    path = tmp_path / "cluster.json"
    done = invoke("profile", "calibrate", "resnet32-cifar10-8", "-o", str(path))
    assert done.exit_code == 0, done.stderr
    assert "1.325 s for a BSP round" in done.stdout
    assert load_profile(str(path)).barrier_seconds == pytest.approx(1.0947, rel=1e-3)
    printed = json.loads(invoke("profile", "calibrate", "resnet32-cifar10-8").stdout)
    assert printed["compute_seconds"] == load_profile(str(path)).compute_seconds
    assert "no bandwidth is known" in printed["description"]

    network = ("--worker-bandwidth", "1e9", "--server-bandwidth", "5e8", "--latency", "0.001")
    command = ("profile", "calibrate", "resnet32-cifar10-8", *network)
    known = json.loads(invoke(*command, "--parameters", "470000").stdout)
    assert known["worker_bandwidths_bytes_per_second"] == [1e9]
    assert known["server_bandwidth_bytes_per_second"] == 5e8
    assert known["latency_seconds"] == 0.001
    # Three messages, and 4 ms for each of two transfers that hardly meet others.
    lone = printed["compute_seconds"] - 3 * 0.001 - 2 * 4 * 470_000 / 5e8
    assert known["compute_seconds"] == pytest.approx(lone, rel=0.01)
    assert "470,000 parameters" in known["description"]
    assert "give --parameters" in error_line(invoke(*command))
