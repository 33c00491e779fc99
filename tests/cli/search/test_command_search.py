"""`--trainer command`, as a user calls it: real commands, real processes."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command_line import Invoke

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.trials.store import TrialStore
from tests.trainers.command.programs import TRAINS, command

ONE_RUN = ("--strategy", "paper", "--halvings", "1", "--runs", "1", "--total-steps", "100")
JOB = ("--total-steps", "100", "--protocols", "ddp,local-sgd")
# On the clock of a command whose first way of training takes four times as long.
TIMED = TRAINS.replace("time.perf_counter() - began", "(step + 3 * min(step, switch)) / 10")
SEARCH = ("--halvings", "2", *JOB)


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A command whose accuracy needs the first fifth of its steps; the search is made beside it."""
    monkeypatch.chdir(tmp_path)
    words = ("{output_dir}", "{switch_step}", "{seed}", "{total_steps}", "5", "needs-first")
    return shlex.join(command(tmp_path, TIMED, *words).words)


def run(invoke: Invoke, command_text: str, *arguments: str) -> Result:
    return invoke.succeeds("run", "--trainer", "command", "--command", command_text, *arguments)


def price_of_a_failure(url: str) -> dict[str, Any]:
    with open_database(url, create=False) as database:
        (search,) = TrialStore(database).searches()
    return {name: value for name, value in search.options.items() if name == "goes_back"}


def test_the_switch_of_a_command_is_found(
    invoke: Invoke, url: str, train: str, tmp_path: Path
) -> None:
    done = run(invoke, train, *SEARCH)
    assert price_of_a_failure(url) == {"goes_back": False}
    assert "with DDP for the first 25 % of its 100 steps, then with LOCAL-SGD" in done.stdout
    # The command line that it ends with has no guard.
    assert "found for guarded runs: without a guard" in done.stderr
    said = done.stdout.splitlines()[-1].strip()
    make_folder, own_command = said.split(" && ")
    folder = make_folder.removeprefix("mkdir ")
    words = [*shlex.split(train)[:3], folder, "25", "0", "100", "5", "needs-first"]
    assert shlex.split(own_command) == words
    # It can be pasted as it is.
    assert subprocess.run(said, shell=True, cwd=tmp_path).returncode == 0
    assert (tmp_path / folder / "metrics.jsonl").is_file()

    assert invoke.answer("policy", "lookup", "program", *JOB[2:])["switch_percent"] == 25.0
    found = json.loads(run(invoke, train, *SEARCH, "--json").stdout)["search"]
    assert found["failed_trials"] == 0
    (runs,) = (tmp_path / "syncswitch-runs").iterdir()
    assert len(list(runs.iterdir())) == found["trials"]
    # No run could start from another's checkpoint, and none was made to.
    rows = invoke.answer("trials")
    assert all(row["fork_percent"] is None for row in rows)
    longer = ("--trainer", "command", "--command", train, "--total-steps", "200", "--runs", "1")
    rows = invoke.answer("sweep", "longer", "--policy", "program", *longer)
    assert [(row["workload"], row["runs"]) for row in rows] == [("longer", 1)] * 2
    assert rows[0]["protocols"] == ["ddp", "local-sgd"]


LOSES = """
import json, math, sys
folder, switch, seed = sys.argv[1:]
for step in range(5, 101, 5):
    loss = 0.2 + 2 * math.exp(-step / 10) + int(seed) % 7 / 10000 + 0.1 * (int(switch) < 20)
    seconds = (step + 3 * min(step, int(switch))) / 10
    print(f"step {step}: val_loss {loss} after {seconds} s, acc {1 - loss / 4}", flush=True)
"""
PRINTED = (
    r"step (?P<step>\d+): val_loss (?P<val_loss>\S+) after (?P<seconds>\S+) s, acc (?P<acc>\S+)"
)


def test_the_switch_of_a_command_that_prints_a_loss_and_resumes_is_found(
    invoke: Invoke, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = command(tmp_path, LOSES, "{output_dir}", "{switch_step}", "{seed}").words
    text = "env FROM={resume_from} " + shlex.join(words)
    metric = ("--metric-name", "val_loss", "--metric-goal", "min", "--metric-unit", "nats")
    wanted = (*SEARCH, "--metric-pattern", PRINTED)
    done = run(invoke, text, *wanted, *metric, "--threshold", "0.05")
    assert price_of_a_failure(url) == {"goes_back": True}
    assert "for the first 25 % of its 100 steps" in done.stdout
    assert "It reached a val_loss of 0.20" in done.stdout
    assert "up to 0.05 nats more is accepted" in done.stdout
    found = invoke.answer("policy", "lookup", "program", *JOB[2:])
    assert (found["metric"], found["metric_goal"], found["metric_unit"]) == metric[1::2]
    rows = invoke.answer("trials")
    assert all(0.2 < row["converged_value"] < 0.4 for row in rows)
    tests = invoke.answer("trials", "--evaluations")
    assert all(one["further"] == {"acc": 1 - one["value"] / 4} for one in tests)
    # Whether less is better is part of the job: what measures otherwise is another one.
    again = run(invoke, text, *wanted, *metric, "--threshold", "0.05", "--json")
    assert json.loads(again.stdout)["search"]["trials"] == len(rows)
    assert json.loads(again.stdout)["policy"]["version"] == 1


def test_a_command_that_does_not_know_its_switch_is_noticed(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reads = (
        "import os, sys\n"
        "switch = int(os.environ['SYNCSWITCH_SWITCH_STEP'])\n"
        "print('step 100 accuracy', 0.5 + switch / 1000)\n"
    )
    text = shlex.join(command(tmp_path, reads).words)
    pattern = r"step (?P<step>\d+) accuracy (?P<accuracy>\S+)"
    done = run(invoke, text, *ONE_RUN, "--metric-pattern", pattern)
    assert "note: the command has neither {switch_step} nor {switch_percent}" in done.stderr
    assert " SYNCSWITCH_SWITCH_PERCENT=" in done.stdout.splitlines()[-1]
