"""`syncswitch-run --trainer simulated`: the job of a simulated search, trained with its policy."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncswitch.cli.run.main import main as run
from syncswitch.cli.search.main import main as search
from tests.tiny_job import write_tiny_job

PROFILE = {"compute_seconds": 1.0, "barrier_seconds": 3.0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("my cluster.json").write_text(json.dumps(PROFILE))
    return tmp_path


def said_to_use(folder: Path) -> list[str]:
    """What a search says at its end."""
    job = write_tiny_job(folder)
    options = ["--strategy", "paper", "--settings", "1", "--runs", "1", "--threshold", "0.9"]
    where = ["--trainer", "simulated", "--profile", "my cluster.json", "--workers", "2"]
    done = CliRunner().invoke(search, ["run", job, *options, *where])
    assert done.exit_code == 0, done.output
    program, *words = shlex.split(done.stdout.splitlines()[-1])
    assert program == "syncswitch-run"
    return words


def refused(*words: str) -> str:
    done: Result = CliRunner().invoke(run, words)
    assert done.exit_code == 2, done.output
    (line,) = done.output.splitlines()
    return line


def test_a_policy_is_used_as_its_search_says(folder: Path, mlflow_uri: str) -> None:
    from mlflow import MlflowClient

    words = said_to_use(folder)
    done = CliRunner().invoke(run, [*words, "--json", "--mlflow", mlflow_uri])
    assert done.exit_code == 0, done.output
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
    again = CliRunner().invoke(run, [*words, "--json", "-o", "again.keras", "--seed", "0"])
    assert json.loads(again.stdout)["accuracy"] == report["accuracy"]
    uses = CliRunner().invoke(search, ["uses", "list", "tiny", "--json"])
    assert len(json.loads(uses.stdout)) == 2
    other = refused(*words[:1], "--trainer", "simulated")
    assert "for --trainer simulated --profile uniform (there is one for 2 simulated" in other
    assert f"syncswitch-search run {words[0]} --trainer simulated --profile uniform" in other
    assert "was found for a simulated job" in refused(words[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--profile", "uniform"], "--profile needs --trainer simulated, and this is --trainer lo"),
        (["--trainer", "simulated", "--launcher", "processes"], "--launcher needs --trainer local"),
        (
            ["--trainer", "simulated", "--gpus-per-worker", "1"],
            "--gpus-per-worker needs --trainer local, and",
        ),
        (["--trainer", "simulated", "--profile", "no"], "profile 'no' cannot be read"),
        (["--trainer", "simulated", "--switch", "restart"], "has no processes to start anew"),
    ],
)
def test_what_does_not_go_together_is_refused(folder: Path, options: list[str], words: str) -> None:
    assert words in refused("digits", "--switch-at", "50", *options)
