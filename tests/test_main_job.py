"""The main job, end to end, as a user does it: search, look up, train. Real TensorFlow."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from syncswitch.storage.policies.file import read_policy_file, write_policy
from syncswitch.storage.records.guard import Band, later_switch_points
from tests import program
from tests.program import TINY_WORKLOAD, assert_refused
from tests.records import changed
from tests.warm_program import run, run_code, start

pytestmark = pytest.mark.slow

WORKLOAD = "tiny_jobs.py:tiny"
JOB = ("run", WORKLOAD, "--workers", 2, "--halvings", 2, "--threshold", 0.3)
SEARCH = (*JOB, "--strategy", "paper", "--runs", 2)


@pytest.fixture(scope="module")
def folder(
    once: Callable[[str, Callable[[Path], None]], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder in which the search was done once."""
    folder = tmp_path_factory.mktemp("job")
    shutil.copytree(once("searched", search), folder, dirs_exist_ok=True)
    return folder


def search(folder: Path) -> None:
    (folder / "tiny_jobs.py").write_text(TINY_WORKLOAD)
    done = run("syncswitch-search", *SEARCH, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    (folder / "result.json").write_text(done.stdout)


@pytest.fixture(scope="module")
def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def whole_runs(folder: Path) -> list[tuple[float, int]]:
    with sqlite3.connect(folder / "syncswitch.db") as database:
        return database.execute(
            "SELECT switch_percent, replicate FROM syncswitch_trials"
            " WHERE state = 'complete' AND use_id IS NULL"
        ).fetchall()


def test_the_search_reports_policy_cost_and_switch_points(folder: Path, result: dict) -> None:
    policy, cost = result["policy"], result["search"]
    assert (policy["switch_percent"], policy["version"]) == (25.0, 1)
    assert (policy["first_protocol"], policy["second_protocol"]) == ("bsp", "asp")
    assert [s["switch_percent"] for s in result["switch_points"]] == [100.0, 50.0, 25.0]
    assert all(s["runs"] == 2 and s["accepted"] for s in result["switch_points"])
    # Training happened: a model that learned nothing would be at one in ten.
    assert all(s["mean_accuracy"] > 0.6 for s in result["switch_points"])
    assert policy["target_accuracy"] == pytest.approx(result["switch_points"][0]["mean_accuracy"])
    seconds = [s["training_seconds"] for s in result["switch_points"]]
    assert cost["trials"] == 6
    assert cost["cost_bsp_multiples"] == pytest.approx(2 * sum(seconds) / seconds[0])
    assert cost["wall_seconds"] >= 2 * sum(seconds)
    again = run("syncswitch-search", *SEARCH, "--json", folder=folder)
    assert json.loads(again.stdout) == result
    assert len(whole_runs(folder)) == 6


def test_the_runner_trains_with_the_stored_policy(folder: Path, result: dict) -> None:
    # It imports TensorFlow itself, as it does for users.
    done = program.run("syncswitch-run", WORKLOAD, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["policy"] == result["policy"]
    assert report["worker_steps"] == 160
    assert [phase["protocol"] for phase in report["phases"]] == ["bsp", "asp"]
    assert report["phases"][0]["end_worker_step"] == 40
    assert report["guard"]["state"] == "quiet"
    alone = [run for run in result["policy"]["evidence"] if run["switch_percent"] == 100]
    assert report["baseline_source"] == f"BSP alone in {len(alone)} recorded runs"
    assert report["speed_up"] == pytest.approx(
        report["baseline_seconds"] / report["training_seconds"]
    )
    assert saved_accuracy(folder / "tiny.keras") == pytest.approx(
        report["final_accuracy"], abs=1e-6
    )
    ((_, seed, accuracy, alarms),) = uses(folder)
    assert (seed, accuracy) == (0, report["accuracy"])
    assert alarms in ("quiet", "alarmed")


def uses(folder: Path) -> list[tuple[str, int, float, str]]:
    """Runs with a policy, in the order in which they were recorded."""
    with sqlite3.connect(folder / "syncswitch.db") as database:
        return database.execute(
            "SELECT use_id, seed, converged_accuracy, guard FROM syncswitch_trials"
            " WHERE use_id IS NOT NULL ORDER BY trial_id"
        ).fetchall()


def saved_accuracy(path: Path) -> float:
    """Test accuracy of a saved model, in a process that knows nothing of syncswitch's runtime."""
    code = (
        "import keras, sys\n"
        "from syncswitch.trainers.workloads.digits import workload\n"
        "data, model = workload.data(), keras.saving.load_model(sys.argv[1])\n"
        "guesses = model.predict(data.test_inputs, verbose=0).argmax(-1)\n"
        "print((guesses == data.test_labels).mean())"
    )
    done = run_code(code, path, folder=path.parent)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_the_runner_trains_with_a_file_and_no_database(folder: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    exported = run("syncswitch-search", "policy", "export", "tiny", "-o", policy, folder=folder)
    assert exported.returncode == 0, exported.stderr
    (tmp_path / "tiny_jobs.py").write_text(TINY_WORKLOAD)
    command = ("syncswitch-run", WORKLOAD, "--policy", policy, "-o", "m.keras", "--seed", 5)
    done = run(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Training took" in done.stdout
    assert (tmp_path / "m.keras").is_file()
    assert not (tmp_path / "syncswitch.db").exists()
    # What it teaches waits for a database.
    waiting = tmp_path / "policy.uses.jsonl"
    assert f"this run waits in {waiting} to be recorded" in done.stderr
    taken = run("syncswitch-search", "uses", "import", waiting, folder=folder)
    assert taken.stdout == f"{waiting}: 1 imported, 0 already there\n"
    assert uses(folder)[-1][1] == 5
    assert not waiting.exists()


def test_a_run_that_fails_by_its_policy_goes_back_to_the_switch(
    folder: Path, tmp_path: Path
) -> None:
    """This one promises more than any run can keep."""
    path = tmp_path / "policy.json"
    assert run("syncswitch-search", "policy", "export", "tiny", "-o", path, folder=folder)
    found = read_policy_file(path)
    strict = {"target_accuracy": 1.0, "threshold": 0.001}
    # Its runs, which say otherwise, are left out.
    policy = changed(found.policy, **strict, band=Band(**strict), guarded=True, kept_share=0.86)
    policy = replace(policy, evidence=())
    write_policy(path, policy, found.workload)
    (tmp_path / "tiny_jobs.py").write_text(TINY_WORKLOAD)
    command = ("syncswitch-run", WORKLOAD, "--policy", path, "--json")
    report = json.loads(run(*command, folder=tmp_path).stdout)
    assert report["guard"]["state"] == "alarmed"
    percent = found.policy.switch_percent
    tries = [(one["switch_percent"], one["worker_step"]) for one in report["guard"]["failed"]]
    assert tries == [(one, 160) for one in (percent, *later_switch_points(percent, "own"))]
    assert report["guard"]["held_percent"] == 100.0
    assert report["guard"]["lost_seconds"] > 0
    assert {phase["protocol"] for phase in report["phases"]} == {"bsp"}
    assert "alarmed" in [event["kind"] for event in report["events"]]
    done = run(*command, "--no-guard", folder=tmp_path)
    assert "without a guard about 86 of 100 runs keep the accuracy" in done.stderr
    unguarded = json.loads(done.stdout)
    assert unguarded["guard"]["state"] == "off"
    assert [phase["protocol"] for phase in unguarded["phases"]] == ["bsp", "asp"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--switch-at", 50, "--protocols", "bsp,ssp:2"), [("bsp", 80), ("ssp:2", 160)]),
        (("--protocol", "bsp"), [("bsp", 160)]),
        (("--switch-at", 0, "--protocols", "bsp,ssp:2"), [("ssp:2", 160)]),
    ],
)
def test_the_runner_trains_at_a_switch_that_no_policy_has(
    tmp_path: Path, options: tuple[object, ...], expected: list[tuple[str, int]]
) -> None:
    (tmp_path / "tiny_jobs.py").write_text(TINY_WORKLOAD)
    done = run("syncswitch-run", WORKLOAD, *options, "--workers", 2, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["policy"], report["workload"], report["workers"]) == (None, "tiny", 2)
    ends = [(phase["protocol"], phase["end_worker_step"]) for phase in report["phases"]]
    assert ends == expected
    assert report["accuracy"] > 0.6
    kinds = [event["kind"] for event in report["events"]]
    assert kinds == ["switched"] * (len(expected) - 1)
    # It is recorded, as every run is that trains a job.
    assert files(tmp_path) == ["syncswitch.db", "tiny.keras", "tiny_jobs.py"]


def test_a_killed_run_goes_on_from_its_last_checkpoint(folder: Path, tmp_path: Path) -> None:
    database = ("--storage", f"sqlite:///{folder}/syncswitch.db")
    slow = [f"--inject=straggler:worker={n},at=0%,for=100%,delay=20ms" for n in range(2)]
    command = ("syncswitch-run", WORKLOAD, *slow, *database, "--json")
    (tmp_path / "tiny_jobs.py").write_text(TINY_WORKLOAD)
    process = start(*command, folder=tmp_path)
    checkpoints = tmp_path / "tiny-checkpoints"
    while process.poll() is None and not list(checkpoints.glob("*.npz")):
        time.sleep(0.01)
    before, (drawn,) = uses(folder), checkpoints.glob("*-use")
    use_id = drawn.read_text()
    process.kill()
    assert process.communicate()[0] == ""
    assert process.returncode == -signal.SIGKILL

    done = run(*command, "--resume", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["worker_steps"] == 160
    assert report["conditions"]["injections"] == [
        f"straggler:worker={n},at=0%,for=100%,delay=20ms" for n in range(2)
    ]
    (resumed,) = [event for event in report["events"] if event["kind"] == "resumed"]
    assert resumed["worker_step"] >= 16
    assert (tmp_path / "tiny.keras").is_file()
    assert not checkpoints.exists()
    # It is one use, by the name that was drawn when it began.
    assert [one[0] for one in uses(folder)] == [*(one[0] for one in before), use_id]


def files(folder: Path) -> list[str]:
    """Without what SQLite keeps beside a database, and Python beside a module."""
    beside = ("syncswitch.db-", "__pycache__")
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(beside))


def test_the_runner_refuses_what_does_not_fit(folder: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    run("syncswitch-search", "policy", "export", "tiny", "-o", policy, folder=folder)
    altered = tmp_path / "altered.json"
    altered.write_text(
        policy.read_text().replace('"switch_percent": 25.0', '"switch_percent": 6.25')
    )
    other = "tiny_jobs.py:other"
    refused = [
        ((other, "--policy", policy), [other, "160 worker-steps", "as it is now with 200"]),
        ((other, "--no-learn"), ["no policy", other]),
        ((WORKLOAD, "--workers", 3, "--no-learn"), ["--workers 3", "for 2 workers"]),
        ((WORKLOAD, "--protocols", "asp,bsp", "--no-learn"), ["asp,bsp", "for 2 workers, bsp,asp"]),
        ((WORKLOAD, "--policy", 9), ["no policy '9'"]),
        ((WORKLOAD, "--policy", altered), ["altered.json", "policy export"]),
        ((WORKLOAD, "--switch-at", 5, "--workers", 200), ["tiny", "two rounds of 200 workers"]),
        ((WORKLOAD, "--checkpoints", "tiny_jobs.py"), ["tiny_jobs.py", "file"]),
        (("tiny_jobs.py:not_a_workload", "--policy", policy), ["int", "tiny"]),
    ]
    before = files(folder)
    for arguments, words in refused:
        assert_refused(run("syncswitch-run", *arguments, folder=folder), *words)
    assert files(folder) == before


def test_adaptive_runs_start_from_checkpoints_that_outlast_a_kill(tmp_path: Path) -> None:
    (tmp_path / "tiny_jobs.py").write_text(TINY_WORKLOAD)
    # With each worker's own momentum the search asks for no BSP before the switch.
    shared = f"{WORKLOAD},momentum_after_switch=same"
    search = ("syncswitch-search", "run", shared, *JOB[2:], "--least-runs", 2, "--json")
    process = start(*search, folder=tmp_path)
    assert "BSP alone, run 1" in process.stderr.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(tmp_path.glob("syncswitch-checkpoints/*/*/*/*.npz"))

    done = run(*search, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    policy = json.loads(done.stdout)["policy"]
    # Whether a switch saves time depends on what else the machine does.
    assert (policy["strategy"], policy["guarded"]) == ("adaptive", True)
    runs = whole_runs(tmp_path)
    assert len(runs) == len(set(runs))
    with sqlite3.connect(tmp_path / "syncswitch.db") as database:
        forks = database.execute(
            "SELECT parent.switch_percent, fork.switch_percent, fork.inherited_seconds"
            " FROM syncswitch_trials AS fork JOIN syncswitch_trials AS parent"
            " ON parent.trial_id = fork.parent_trial_id WHERE fork.state = 'complete'"
        ).fetchall()
        protocols = database.execute(
            "SELECT DISTINCT protocol FROM syncswitch_trials JOIN syncswitch_phases"
            " USING (trial_id) WHERE parent_trial_id IS NOT NULL AND fork_percent = switch_percent"
        ).fetchall()
    assert forks
    assert all(parent >= fork and inherited > 0 for parent, fork, inherited in forks)
    assert protocols == [("asp",)]
    assert not (tmp_path / "syncswitch-checkpoints").exists()
