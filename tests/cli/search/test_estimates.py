"""What is estimated: `run --dry-run`, and the profiles of simulated clusters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Invoke, error_line
from generated_trainer import ASP_SECONDS, BSP_SECONDS

from syncswitch.trainers.simulated.profile import load_profile, profile_names

PAPER = ["--strategy", "paper"]
ANSWERS = [100.0, 50.0, 25.0, 12.5]
TIMES = ["--first-seconds", "100", "--second-seconds", "40"]


def forecast(invoke: Invoke, *arguments: str) -> Any:
    answers = invoke.answer("run", "any", "--halvings", "3", "--dry-run", *arguments)
    assert [answer["switch_percent"] for answer in answers] == ANSWERS
    return answers


def test_from_given_times_and_without_a_database(invoke: Invoke, folder: Path) -> None:
    answers = forecast(invoke, *PAPER, "--runs", "2", *TIMES)
    # BSP, 50 % and 25 % accepted, 12.5 % accepted as well: each twice.
    assert answers[-1]["search_cost"] == pytest.approx(2 * (1.0 + 0.7 + 0.55 + 0.475))
    assert answers[-1]["speed_up"] == pytest.approx(1 / 0.475)
    assert list(folder.glob("*.db")) == []


def test_recorded_runs_say_what_given_times_would(invoke: Invoke) -> None:
    invoke.succeeds("run", "any", "--halvings", "3", "--runs", "1", *PAPER)
    assert (BSP_SECONDS, ASP_SECONDS) == (100.0, 40.0)
    for known, given in zip(
        forecast(invoke, *PAPER), forecast(invoke, *PAPER, *TIMES), strict=True
    ):
        assert known == pytest.approx(given)


@pytest.mark.parametrize(
    ("strategy", "caveat"),
    [
        ("paper", "an unlucky search costs more."),
        ("adaptive", "means over searches on generated accuracies"),
    ],
)
def test_the_table_says_when_it_is_paid_back_and_what_it_assumes(
    invoke: Invoke, folder: Path, strategy: str, caveat: str
) -> None:
    (folder / "train.py").touch()
    job = ["--trainer", "command", "--command", "python train.py", "--total-steps", "20"]
    done = invoke.succeeds("run", "short", *job, "--dry-run", "--strategy", strategy, *TIMES)
    # The adaptive search leaves out what is no other switch.
    said = "3.125 and 6.25 % of this job's 20 steps are the same switch, after 1" in done.stderr
    assert said == (strategy == "paper")
    assert "never" in done.stdout
    assert caveat in " ".join(done.stdout.split())
    assert "Nothing was trained." in " ".join(done.stdout.split())


def test_the_profiles_are_listed_with_what_they_are(invoke: Invoke) -> None:
    text = invoke("profile", "list").stdout
    found = invoke.answer("profile", "list")
    assert list(found) == profile_names()
    for name, description in found.items():
        assert f"{name}: {description}" in text
    shown = json.loads(invoke("profile", "show", "uniform").stdout)
    assert (shown["compute_seconds"], shown["stragglers"]) == (0.05, [])


def test_times_of_protocols_and_of_switch_points(invoke: Invoke) -> None:
    short = ("--worker-steps", "800", "--seeds", "1")
    words = ("profile", "times", "heterogeneous", "--protocols", "bsp,ssp:3,asp", *short)
    alone = invoke.answer(*words)
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
    done = invoke.succeeds("profile", "calibrate", "resnet32-cifar10-8", "-o", str(path))
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
