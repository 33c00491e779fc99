"""`syncswitch-search import`: what it prints, and its exit statuses."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncswitch.searcher.cli.main import main
from syncswitch.storage.importing import run_import
from tests.program import run as run_program
from tests.recordings import write_manifest, write_run

Invoke = Callable[..., Result]

GOOD = ("r32", "run", "bsp", "asp", 50, 1, 8, 8000)
MISSING = ("r32", "nowhere", "bsp", "asp", 50, 2, 8, 8000)


@pytest.fixture
def invoke(tmp_path: Path) -> Invoke:
    def call(*arguments: object) -> Result:
        storage = ("--storage", f"sqlite:///{tmp_path}/syncswitch.db")
        command = ["import", *map(str, arguments), *storage]
        return CliRunner().invoke(main, command, prog_name="syncswitch-search")

    return call


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    write_run(folder / "run")
    return folder


def test_the_summary_names_what_was_not_used(invoke: Invoke, logs: Path) -> None:
    manifest = write_manifest(logs / "manifest.csv", [GOOD, MISSING])
    result = invoke(manifest)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "runs: 1 imported (19 evaluations), 0 already there, 1 not used",
        "workload r32, 8 workers, bsp,asp",
        "",
        "not used:",
        "  line 3, nowhere: there is no folder nowhere; is --logs right?",
    ]
    again = invoke(manifest)
    assert again.exit_code == 0
    assert again.stdout.startswith("runs: 0 imported (0 evaluations), 1 already there, 1 not used")


def test_the_same_as_json(invoke: Invoke, logs: Path, tmp_path: Path) -> None:
    columns = ("setup", "run_dir", "first_protocol", "second_protocol", "switch_percent")
    columns += ("replicate", "workers", "total_worker_steps", "gpu")
    manifest = write_manifest(tmp_path / "list.csv", [(*GOOD, "x"), (*MISSING, "x")], columns)
    result = invoke(manifest, "--logs", logs, "--json")
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    (workload,) = content.pop("workloads")
    assert len(workload.pop("fingerprint")) == 64
    assert workload == {
        "workload": "r32",
        "workers": 8,
        "first_protocol": "bsp",
        "second_protocol": "asp",
    }
    assert content == {
        "imported_runs": 1,
        "already_there_runs": 0,
        "imported_evaluations": 19,
        "not_used": [
            {"line": 3, "run": "nowhere", "text": "there is no folder nowhere; is --logs right?"}
        ],
        "notes": [{"line": 1, "run": "", "text": "ignored columns: gpu"}],
    }


def test_where_no_row_can_be_used_the_status_says_so(invoke: Invoke, logs: Path) -> None:
    result = invoke(write_manifest(logs / "manifest.csv", [MISSING]))
    assert result.exit_code == 1
    assert "runs: 0 imported" in result.stdout


def test_a_tensorboard_export_with_its_columns_in_another_order(
    invoke: Invoke, tmp_path: Path
) -> None:
    folder = tmp_path / "board"
    folder.mkdir()
    for name, value in (("run-validation-tag-epoch_accuracy", 0.5), ("run-train-tag-loss", 2.0)):
        rows = [f"{value},{step},{1.6e9 + step}" for step in range(0, 101, 10)]
        (folder / f"{name}.csv").write_text("\n".join(["Value,STEP,Wall time", *rows]))
    row = ("mine", ".", "bsp", "asp", 100, 0, 4, 400)
    result = invoke(write_manifest(folder / "manifest.csv", [row]))
    assert result.exit_code == 0, result.stderr
    connection = sqlite3.connect(tmp_path / "syncswitch.db")
    query = (
        "SELECT workload, candidate_percent, converged_accuracy, training_seconds, worker_steps,"
        " first_phase_worker_steps_per_second, time_to_accuracy_seconds"
        " FROM syncswitch_trial_facts"
    )
    assert connection.execute(query).fetchall() == [("mine", 100.0, 0.5, 100.0, 400, 4.0, 0.0)]
    connection.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.csv"], "'no.csv' does not exist"),
        (["."], "'.' is a directory"),
        (["{logs}/run/acc.csv"], "lacks setup, run_dir"),
        (["{logs}/manifest.csv", "--logs", "nowhere"], "'nowhere' does not exist"),
        (["{logs}/manifest.csv", "--logs", "{logs}/manifest.csv"], "is a file"),
        ([], "Missing argument 'MANIFEST'"),
    ],
)
def test_a_wrong_argument_is_one_line_and_makes_no_database(
    invoke: Invoke, logs: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    write_manifest(logs / "manifest.csv", [GOOD])
    result = invoke(*(argument.format(logs=logs) for argument in arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert message in line
    assert not (tmp_path / "syncswitch.db").exists()


def test_an_interrupted_import_says_how_to_go_on(
    invoke: Invoke, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = write_manifest(logs / "manifest.csv", [GOOD])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_import, "read_imported_run", interrupted)
        result = invoke(manifest)
    assert result.exit_code == 130
    assert "the same command continues" in result.stderr
    assert invoke(manifest).stdout.startswith("runs: 1 imported")


def test_the_published_runs_as_a_user_imports_them(tmp_path: Path, published: Path) -> None:
    done = run_program(
        "syncswitch-search",
        "import",
        str(published / "manifest.csv"),
        "--logs",
        str(published / "data"),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "runs: 45 imported (1,301 evaluations), 0 already there, 0 not used"
    assert (tmp_path / "syncswitch.db").is_file()
