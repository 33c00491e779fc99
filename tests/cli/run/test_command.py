"""`syncswitch-run --trainer command`: real commands, held against the band of their policy."""

from __future__ import annotations

import json
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from syncswitch.cli.run.main import main
from syncswitch.searcher.learning.reading import used_job
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.file import write_policy
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import RegisteredWorkload, ScheduledJob
from syncswitch.storage.uses.store import uses
from syncswitch.trainers.command.job import CommandJob, CommandTemplate
from tests import program
from tests.searcher.command_line import Invoke
from tests.searcher.policies import policy_of, published
from tests.trainers.command.programs import command

# As accurate as its switch is late: 0.9 with a switch from step 50 on.
TRAINS = """
import json, os, sys
folder, switch, seed = sys.argv[1:]
with open(folder + "/metrics.jsonl", "w") as results:
    for step in range(0, 101, 20):
        accuracy = min(step / 100, 0.9 if int(switch) >= 50 else 0.5)
        line = {"step": step, "seconds": float(step), "accuracy": accuracy}
        print(json.dumps({**line, "diverged": seed == "13"}), file=results, flush=True)
open(folder + "/seed", "w").write(seed)
"""


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The command."""
    monkeypatch.chdir(tmp_path)
    words = command(tmp_path, TRAINS, "{output_dir}", "{switch_step}", "{seed}").words
    return shlex.join(words)


@pytest.fixture
def run(text: str, sqlite_url: str) -> Invoke:
    job = ("job", "--trainer", "command", "--command", text, "--total-steps", "100")
    return Invoke(*job, "--storage", sqlite_url, program=main)


# The mean of the last five tests is 0.58.
FOUND = {
    "switch_percent": 50.0,
    "target_accuracy": 0.58,
    "band": Band(0.58, 0.01),
    "guarded": True,
    "kept_share": 0.86,
}


@pytest.fixture
def identity(text: str) -> ScheduledJob:
    return CommandJob(CommandTemplate.parse(text), "job", 100).identity


@pytest.fixture
def policy_file(tmp_path: Path, identity: ScheduledJob) -> Callable[[float], str]:
    def write(percent: float) -> str:
        path, policy = tmp_path / "policy.json", policy_of(identity, **FOUND)
        policy = replace(policy, switch_percent=percent)
        write_policy(path, policy, RegisteredWorkload(identity.job, "job"))
        return str(path)

    return write


def left(report: dict[str, Any]) -> str:
    return (Path(report["output_folder"]) / "seed").read_text()


def test_a_command_trains_with_its_policy(run: Invoke, policy_file: Callable[[float], str]) -> None:
    report = run.answer("--policy", policy_file(50), "--seed", "7")
    assert (report["workload"], report["switch_percent"], report["seed"]) == ("job", 50, 7)
    assert report["accuracy"] == pytest.approx(0.58)
    assert report["reaches_target"] is True
    assert (report["guard"]["state"], report["guard"]["held_percent"]) == ("quiet", 50.0)
    assert report["model"] is None
    assert left(report) == "7"


def test_a_failure_is_run_again_without_the_switch(
    run: Invoke, policy_file: Callable[[float], str]
) -> None:
    path = policy_file(20)
    report = run.answer("--policy", path, "--seed", "7")
    assert (report["accuracy"], report["training_seconds"]) == (pytest.approx(0.58), 200.0)
    guard = report["guard"]
    (failed,) = guard["failed"]
    assert (guard["state"], guard["held_percent"]) == ("alarmed", 100.0)
    assert guard["lost_seconds"] == 100.0
    assert (failed["switch_percent"], failed["worker_step"]) == (20.0, 100)
    assert "switch-100-" in str(report["output_folder"])
    assert left(report) == "7"
    done = run("--policy", path)
    assert "found for guarded runs" not in done.stderr
    said = " ".join(done.stdout.split())
    assert "The guard gave up the switch at 20 % after 100.0 s: it ends with" in said
    assert "The command's output is in /" in said
    assert "Model saved" not in said
    done = run.succeeds("--policy", path, "--no-guard", "--json")
    assert done.stderr.count("without a guard about 86 of 100 runs keep the accuracy") == 1
    report = json.loads(done.stdout)
    assert (report["training_seconds"], report["reaches_target"]) == (100.0, False)
    assert (report["guard"]["state"], report["guard"]["held_percent"]) == ("off", 20.0)


def test_the_policy_comes_from_the_database(
    run: Invoke, identity: ScheduledJob, sqlite_url: str
) -> None:
    policy = published(sqlite_url, identity, "job", **FOUND)
    assert run.answer()["switch_percent"] == 50
    with open_database(sqlite_url, create=False) as database:
        (use,) = uses(database, policy.job.fingerprint)
    assert (use.origin.kind, use.origin.policy_version) == ("use", 1)
    assert (use.guard.state, use.seed) == ("quiet", 0)
    assert run.answer("--workers", "1")["fingerprint"] == policy.job.fingerprint
    for words in (("--workers", "2"), ("--total-steps", "200")):
        done = run(*words, "--no-learn")
        assert done.exit_code == 2
        assert "syncswitch-search run job --trainer command" in done.stderr


@pytest.mark.parametrize("resumes", [False, True], ids=["begins anew", "goes back"])
def test_it_learns_from_nothing_at_the_price_that_its_failures_have(
    resumes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    faster = TRAINS.replace(
        "float(step)", "min(step, int(switch)) + max(0, step - int(switch)) / 4"
    )
    words = command(tmp_path, faster, "{output_dir}", "{switch_step}", "{seed}").words
    given = ("env FROM={resume_from} " if resumes else "") + shlex.join(words)
    job = ("job", "--trainer", "command", "--command", given, "--total-steps", "100")
    learns = Invoke(*job, "--storage", sqlite_url, "--learn", "--expected-runs", "30", program=main)
    done = [learns.succeeds("--json") for _ in range(4)]
    reports = [json.loads(one.stdout) for one in done]
    assert "this run, with seed 0, uses the first way alone" in done[0].stderr
    assert (reports[0]["switch_percent"], reports[0]["policy"] is not None) == (100, True)
    switches = [report["switch_percent"] for report in reports[1:]]
    assert 100 not in switches
    # Whatever was tried, each delivers a model that keeps the accuracy.
    assert all(report["reaches_target"] for report in reports)
    with open_database(sqlite_url, create=False) as database:
        (policy,) = PolicyRegistry(database).lookup(str(reports[0]["fingerprint"]), alias="current")
        known = uses(database, policy.job.fingerprint)
        assert [use.seed for use in known] == [0, 1, 2, 3]
        has_failed = any(use.failed for use in known)
        assert used_job(database, policy).goes_back == (resumes or not has_failed)
        assert not used_job(database, policy, goes_back=False).strategy().goes_back


# Crashes once, after its only checkpoint.
CRASHES = """
import os, sys
from json import dumps
folder, origin = sys.argv[1:]
start = int(open(origin + "/step").read()) if origin else 0
for iteration in range(start, 101, 20):
    print(dumps({"iter": iteration, "accuracy": iteration / 100, "seconds": iteration - start}),
          file=open(folder + "/metrics.jsonl", "a"))
    if iteration == 40:
        open(folder + "/step", "w").write("40")
    if iteration == 60 and not origin:
        sys.exit("out of memory")
"""


def test_one_that_crashes_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.join(command(tmp_path, CRASHES, "{output_dir}", "{resume_from}").words)
    job = ("job", "--trainer", "command", "--total-steps", "100", "--step-name", "iter")
    run = Invoke(*job, "--command", words, "--storage", sqlite_url, program=main)
    done = run.succeeds("--switch-at", "50", "--json")
    report = json.loads(done.stdout)
    assert (report["accuracy"], report["training_seconds"]) == (pytest.approx(0.6), 100.0)
    assert "; it printed last: out of memory" in done.stderr
    assert "it is run again, from the checkpoint that it has left" in done.stderr


def test_a_switch_of_its_users_choice_needs_no_policy(run: Invoke) -> None:
    report = run.answer("--switch-at", "20", "--protocols", "ddp,local-sgd")
    assert (report["policy"], report["first_protocol"]) == (None, "ddp")
    assert report["accuracy"] == pytest.approx((0.2 + 0.4 + 3 * 0.5) / 5)
    done = run("--switch-at", "50", "--seed", "13")
    assert done.exit_code == 1
    assert "error: the training diverged after 0 of its steps" in done.stderr
    done = run("--policy", "none.json")
    assert done.exit_code == 2
    assert "cannot read the policy file none.json" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_command_ends_with_the_program(tmp_path: Path, number: signal.Signals) -> None:
    hangs = "import os, sys, time\nopen(sys.argv[1] + '/process', 'w').write(str(os.getpid()))\n"
    words = command(tmp_path, f"{hangs}time.sleep(600)", "{output_dir}").words
    job = ("job", "--trainer", "command", "--total-steps", 100, "--switch-at", 50)
    running = program.start("syncswitch-run", *job, "--command", shlex.join(words), folder=tmp_path)
    runs = tmp_path / "syncswitch-runs"
    while running.poll() is None and not any(file.read_text() for file in runs.glob("*/*/process")):
        time.sleep(0.01)
    (file,) = runs.glob("*/*/process")
    trains = psutil.Process(int(file.read_text()))
    running.send_signal(number)
    said = running.communicate()[1]
    psutil.wait_procs([trains], timeout=30)
    assert not trains.is_running()
    if number == signal.SIGINT:
        assert running.returncode == 130
        assert said == "error: interrupted; the same command starts over\n"
