"""A search from Python."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncswitch import PolicyRegistry, UserError, open_database
from syncswitch.cli.search.main import main
from syncswitch.searcher.api import report, search, sweep, train
from tests.searcher import regression_jobs
from tests.trainers.jobs import DENSE
from tests.wording import Said

MAE = f"{regression_jobs.__file__}:mae"
OWN = replace(DENSE, name="own", total_worker_steps=400)

SCRIPT = """
import json, sys
path, switch, total = sys.argv[1], int(sys.argv[2]), 100
accuracy = 0.9 if switch >= 20 else 0.5
with open(path, "w") as file:
    for step in range(20, total + 1, 20):
        print(json.dumps({"step": step, "seconds": step / 10, "accuracy": accuracy}), file=file)
"""


@pytest.fixture
def command(tmp_path: Path) -> dict[str, Any]:
    """A training whose accuracy falls where it switches before 20 %."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    return {
        "command": f"{sys.executable} {script} {{output_dir}}/metrics.jsonl {{switch_step}}",
        "total_steps": "100",
        "output_folder": tmp_path / "runs",
    }


def test_it_finds_saves_and_returns_what_the_command_line_finds(
    command: dict[str, Any], url: str, mlflow_uri: str
) -> None:
    from mlflow import MlflowClient

    options: dict[str, Any] = {"halvings": 3, "runs": 1, "seed": 3}
    usual = {"strategy": "paper", "storage": url, "mlflow": mlflow_uri}
    policy = search("own", trainer="command", trainer_options=command, **usual, **options)
    assert policy.switch_percent == 25
    assert (policy.job.workload, policy.version, policy.strategy) == ("own", 1, "paper")
    with open_database(url, create=False) as database:
        assert PolicyRegistry(database).policies() == [policy]
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in command.items()]
    arguments += [f"--{name}={value}" for name, value in options.items()]
    program = ["run", "own", "--trainer=command", "--strategy=paper", "--json"]
    result = CliRunner().invoke(main, [*program, f"--storage={url}", *arguments])
    # The same search: it is finished, and nothing is trained again.
    assert json.loads(result.stdout)["policy"]["version"] == 1
    assert "this search is finished, with 4 runs" in result.stderr
    client = MlflowClient(mlflow_uri)
    (experiment,) = (one for one in client.search_experiments() if one.name != "Default")
    runs = client.search_runs([experiment.experiment_id])
    accuracies = [run.data.metrics.get("converged_accuracy") for run in runs]
    assert sorted(filter(None, accuracies)) == [0.5, 0.9, 0.9, 0.9]
    found = [run.data.metrics.get("policy/switch_percent") for run in runs]
    assert [one for one in found if one is not None] == [25]


def test_what_cannot_be_is_refused_before_anything_is_written(said: Said, url: str) -> None:
    for arguments in (
        {"trainer": "cloud"},
        {"trainer_options": {"speed": 3}},
        {"trainer_options": {"launcher": "x"}},
        {"trainer_options": {"--gpus-per-worker": "x"}},
        {"trainer_options": {"parameter_servers": 0}},
        {"trainer_options": {"parameter_servers": 10**9}},
        {"trainer_options": {"parameter_servers": 1.5}},
        {"trainer_options": {"server_grace": math.nan}},
        {"trainer_options": {"open_network": 5}},
        {"trainer": "command", "trainer_options": {"output_folder": 5}},
        {"protocols": "bsp"},
        {"workers": 0},
        {"strategy": "fastest"},
        {"bugdet": 3},
        {"min_kept_share": 0.9},
        {"baseline_runs": 2},
        {"online": "sometimes"},
        {"checkpoints": 3},
        {"threshold": 3.0},
        {"mlflow": "ftp://here"},
        {"trainer": "replay"},
        {"trainer": "command"},
        {"workload": MAE, "budget": 2.0},
        {"workload": Path("train.py")},
        {"workload": None},
        {"workload": OWN, "trainer_options": {"launcher": "processes"}},
    ):
        with pytest.raises(UserError) as caught:
            search(**{"workload": "digits", "storage": url, **arguments})
        assert not Path(url.removeprefix("sqlite:///")).exists()
        said(caught.value)


@pytest.mark.parametrize("accuracy", ["0.5", "step / 100"])
def test_a_metric_that_never_moves_is_told_once(
    accuracy: str, command: dict[str, Any], url: str, tmp_path: Path, caplog: Any
) -> None:
    script = SCRIPT.replace("20, total + 1, 20", "10, total + 1, 10")
    script = script.replace('"accuracy": accuracy', f'"accuracy": {accuracy}')
    (tmp_path / "train.py").write_text(script)
    least = {"strategy": "paper", "halvings": 1, "runs": 1, "early_stop": False}
    options = {**command, "timeout": None}
    search("still", trainer="command", trainer_options=options, storage=url, **least)
    assert sum("cannot be compared" in line for line in caplog.messages) == (accuracy == "0.5")


@pytest.mark.usefixtures("one_model")
def test_the_other_commands_are_functions_too(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job: dict[str, Any] = {"trainer": "simulated", "workers": 4, "storage": url}
    workload = f"{tmp_path}/tiny.py:workload"
    (tmp_path / "tiny.py").write_text(
        "from dataclasses import replace\n"
        "from syncswitch.trainers.workloads.digits import workload as digits\n"
        "workload = replace(digits, name='tiny', total_worker_steps=200)\n"
    )
    policy = search(workload, strategy="paper", halvings=1, runs=1, **job)
    done = train(workload, **job)
    assert (done.policy, done.record.spec.switch_percent) == (policy, policy.switch_percent)
    assert (done.model_path, done.model_path.is_file()) == (Path("tiny.keras"), True)
    own = train(workload, switch_at=25, seed=1, output=Path("own.keras"), **job)
    assert (own.policy, own.record.spec.switch_percent) == (None, 25)

    found = sweep(workload, [50, 0], runs=1, **job)
    points = found.jobs[0].switch_points
    assert [point.switch_percent for point in points] == [100, 50, 0]
    assert points[0].mean_accuracy == found.target_accuracy
    compared = sweep(workload, policies=[policy], runs=1, **job)
    tried = {point.switch_percent for point in compared.jobs[0].switch_points}
    assert tried == {100, policy.switch_percent}
    assert sweep(workload, policies=["tiny@1"], runs=1, **job) == compared

    page = report("tiny", tmp_path / "tiny.html", storage=url)
    assert (tmp_path / "tiny.html").read_text() == page


ADAPTIVE = """
from dataclasses import replace
from tests.trainers.clicks import adam
from tests.trainers.jobs import DENSE
workload = replace(DENSE, name="adaptive", optimizer=adam, learning_rate=0.001)
"""


def test_each_way_of_training_says_first_what_becomes_of_an_adaptive_rate(
    tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "adaptive.py").write_text(ADAPTIVE)
    job = f"{tmp_path / 'adaptive.py'}:workload"
    usual: dict[str, Any] = {"trainer": "simulated", "workers": 2, "storage": url}
    for make in (
        lambda: train(job, output=tmp_path / "a.keras", switch_at=50, guarded=False, **usual),
        lambda: search(job, strategy="paper", halvings=1, runs=1, threshold=0.9, **usual),
        lambda: sweep(job, [100], runs=1, **usual),
    ):
        caplog.clear()
        make()
        said = [one for one in caplog.messages if one.startswith("the learning rate, 0.001 as")]
        assert said == caplog.messages[:1]


def test_bad_input_is_one_line(said: Said, url: str) -> None:
    for function, options in (
        (sweep, {"at": []}),
        (sweep, {"at": [101]}),
        (sweep, {"at": [50], "runs": 0}),
        (train, {"switch_at": 101}),
        (train, {"trainer": "replay", "trainer_options": {"recordings": "sqlite:///runs.db"}}),
        (train, {"switch_at": 5, "protocol": "bsp"}),
        (train, {"learn": True, "guarded": False}),
        (train, {"learn": False}),
        (sweep, {"policies": ["no.json"]}),
        (train, {"policy": "no.json"}),
        (report, {}),
        (report, {"study": "a", "version": "1"}),
    ):
        with pytest.raises(UserError) as error:
            function(workload="digits", storage=url, **options)
        said(error.value)
