"""`syncswitch-run --trainer simulated`: the job of a simulated search, trained with its policy."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from syncswitch.cli.run.main import main
from tests import warm_program
from tests.searcher.command_line import Invoke
from tests.tiny_job import write_tiny_job

pytestmark = pytest.mark.usefixtures("one_model")

search, run = Invoke(), Invoke(program=main)
PROFILE = {"compute_seconds": 1.0, "barrier_seconds": 3.0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("my cluster.json").write_text(json.dumps(PROFILE))
    return tmp_path


def said_to_use(folder: Path) -> list[str]:
    """What a search says at its end."""
    job = write_tiny_job(folder)
    options = ["--strategy", "paper", "--halvings", "1", "--runs", "1", "--threshold", "0.9"]
    where = ["--trainer", "simulated", "--profile", "my cluster.json", "--workers", "2"]
    done = search.succeeds("run", job, *options, *where)
    program, *words = shlex.split(done.stdout.splitlines()[-1])
    assert program == "syncswitch-run"
    return words


def refused(*words: str) -> str:
    done = run(*words)
    assert done.exit_code == 2, done.output
    (line,) = done.output.splitlines()
    return line


def test_a_policy_is_used_as_its_search_says(folder: Path, mlflow_uri: str) -> None:
    from mlflow import MlflowClient

    words = said_to_use(folder)
    done = run.succeeds(*words, "--json", "--mlflow", mlflow_uri)
    report = json.loads(done.stdout)
    # 12 rounds of 1 + 3 s, all on the virtual clock.
    assert report["phases"][0]["seconds"] == pytest.approx(48)
    assert report["speed_up"] > 1.5
    client = MlflowClient(mlflow_uri)
    (copy,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
    assert (copy.info.status, copy.data.tags["syncswitch.policy_version"]) == ("FINISHED", "1")
    assert copy.data.metrics["converged_accuracy"] == report["accuracy"]
    assert Path("tiny.keras").is_file()
    assert not Path("tiny-checkpoints").exists()
    assert done.stderr.splitlines()[0] == "this run has seed 0"
    again = run.answer(*words, "-o", "again.keras", "--seed", "0")
    assert again["accuracy"] == report["accuracy"]
    assert len(search.answer("uses", "list", "tiny")) == 2
    other = refused(*words[:1], "--trainer", "simulated", "--no-learn")
    assert "with --trainer simulated --profile uniform in " in other
    assert "(there is one for 2 simulated" in other
    assert f"syncswitch-search run {words[0]} --trainer simulated --profile uniform" in other
    told, begins, kept = run.succeeds(*words[:1], "--trainer", "simulated").stderr.splitlines()
    assert kept == "the model of an earlier run in tiny.keras is kept as tiny-1.keras"
    there = other.removeprefix("error: ").partition("; find")[0]
    assert told == f"{there}; this run begins its own"
    # Of so short a job 6.25 % is no whole round.
    assert "switches to ASP at 12.5 %, which should be fastest for the 3 runs" in begins
    for keeps_to_it in (["--no-learn"], ["--no-guard"], ["--policy", "1"]):
        assert "was found for a simulated job" in refused(words[0], *keeps_to_it)


def real_run(job: str, *options: str) -> tuple[dict[str, Any], str]:
    """The report of a run on threads, and what it told."""
    done = run.succeeds(job, "--json", *options)
    return json.loads(done.stdout), done.stderr


def test_real_runs_begin_from_the_policy_of_simulated_ones(folder: Path) -> None:
    """The first takes its switch and is guarded; all later ones go by real runs alone."""
    job = said_to_use(folder)[0]
    (simulated,) = search.answer("policy", "list")
    assert simulated["switch_percent"] == 50.0
    report, told = real_run(job)
    assert "starts from the policy of simulated runs (version 1 for 2 simulated workers)" in told
    assert report["guard"]["state"] == "quiet"
    assert [phase["protocol"] for phase in report["phases"]] == ["bsp", "asp"]
    real = next(row for row in search.answer("policy", "list") if row["simulated_cluster"] is None)
    assert (real["version"], real["switch_percent"]) == (1, 50.0)
    assert real["target_accuracy"] == simulated["target_accuracy"]
    assert "begun from version 1 for 2 simulated workers" in real["reason"]
    _, told = real_run(job)
    assert "simulated" not in told
    assert len(search.answer("uses", "list", real["fingerprint"])) == 2
    # A simulated run still goes by its own policy, and by no real one.
    where = ["--trainer", "simulated", "--profile", "my cluster.json"]
    assert real_run(job, *where)[0]["policy"]["fingerprint"] == simulated["fingerprint"]
    alone = ["--storage", "sqlite:///real.db"]
    real_run(job, "--learn", "--workers", "2", *alone)
    assert "(there is one for 2 workers, bsp,asp)" in refused(job, *where, *alone, "--no-learn")


def test_a_first_real_run_that_was_killed_goes_on_as_it_began(folder: Path) -> None:
    job = said_to_use(folder)[0]
    stop = ["--checkpoint-every", "10", "--inject", "kill:chief,at=30%"]
    killed = warm_program.run("syncswitch-run", job, *stop, folder=folder)
    assert killed.returncode != 0
    assert "starts from the policy of simulated runs" in killed.stderr
    report, told = real_run(job, "--resume", *stop)
    assert "starts from the policy of simulated runs" in told
    assert f"with seed {report['seed']}," in killed.stderr
    (use,) = search.answer("uses", "list", report["policy"]["fingerprint"])
    assert use["switch_percent"] == 50.0
