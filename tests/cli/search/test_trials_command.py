"""`trials` and `settings`: on a terminal, as files, and without pandas."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest
from command_line import Invoke, copy_database, error_line
from generated_trainer import GeneratedTrainer, identity
from searches import trials_of
from terminal import Terminal

from syncswitch.storage import frames
from syncswitch.storage.database.defaults import ENVIRONMENT_VARIABLE
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.job import SearchInfo
from syncswitch.storage.records.trial import PhaseRecord, TrialSpec
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Fork, Owner
from tests.conftest import Once
from tests.program import code
from tests.storage.filled import fill, import_runs
from tests.wording import Said

# What programs read before there were columns to export.
KEYS = {
    *("trial_id", "study", "trial_number", "source", "workload", "fingerprint", "workers"),
    *("candidate_percent", "switch_percent", "replicate", "seed", "parent_trial_id"),
    *("fork_percent", "state", "converged_accuracy", "final_accuracy", "converged", "diverged"),
    *("stopped_early", "training_seconds", "inherited_seconds", "switch_overhead_seconds"),
    *("target_accuracy", "time_to_accuracy_seconds", "worker_steps", "total_worker_steps"),
    *("phases", "started_at", "ended_at", "heartbeat_at", "host", "process_id"),
    *("process_started_at", "failure", "step_seconds"),
}


@pytest.fixture
def url(once: Once) -> str:
    """What `invoke` uses: searches, imported runs, and a run whose process is dead."""
    return f"sqlite:///{once('filled-with-trials', fill_all)}/filled.db"


def fill_all(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "written.db"
        fill(f"sqlite:///{path}")
        with open_database(f"sqlite:///{path}", create=False) as database:
            add_forks(TrialStore(database))
            import_runs(database, folder)
            owner = Owner(socket.gethostname(), os.getpid(), 1.0)  # a process of long ago
            spec = TrialSpec(identity(name="larger", workers=8), 100.0, 7)
            TrialStore(database).begin("under-way", 1, spec, owner)
        copy_database(path, folder / "filled.db")


def add_forks(store: TrialStore) -> None:
    """A run, and a fork of it that was stopped when it had made 80 % of the job."""
    job = identity(name="forked", model="1" * 64)
    search = SearchInfo(
        "forked", job.fingerprint, job.protocols, "adaptive", 3, 2, 0.01, 0.9, "local", 1
    )
    store.register(job, "forked", search)
    first = TrialSpec(job, 100.0, 7)
    fork = replace(first, switch_percent=50.0, fork_from=Path("half.npz"))
    whole = GeneratedTrainer().train(fork)
    stopped = replace(
        whole,
        worker_steps=2400,
        evaluations=(),
        phases=(PhaseRecord("asp", 1500, 2400, 12.0, 3.0, 9),),
        stopped_early=True,
        training_seconds=62.0,
        inherited_seconds=50.0,
    )
    store.begin("forked", 0, first, Owner.current())
    store.complete("forked", 0, GeneratedTrainer().train(first))
    store.begin("forked", 1, fork, Owner.current(), fork=Fork(0, 50.0))
    store.complete("forked", 1, stopped)


def on_terminal(url: str, columns: int, *arguments: str) -> list[str]:
    """The lines that the program shows on a terminal of this width."""
    storage = {ENVIRONMENT_VARIABLE: url}
    terminal = Terminal(code("syncswitch-search"), *arguments, columns=columns, **storage)
    terminal.end()
    return terminal.text.splitlines()


def test_trials_fit_a_terminal_of_80_columns(url: str, said: Said) -> None:
    lines = on_terminal(url, 80, "trials")
    assert max(map(len, lines)) <= 80
    said(*lines)


def test_a_stopped_fork_is_taken_for_a_whole_run(invoke: Invoke, said: Said) -> None:
    first, fork = invoke.answer("trials", "forked")
    names = ("end", "parent_trial_number", "parent_trial_id", "fork_percent")
    assert [first[name] for name in names] == ["whole", None, None, None]
    assert [fork[name] for name in names] == ["stopped", 0, first["trial_id"], 50.0]
    names = ("training_seconds", "paid_seconds", "whole_run_seconds")
    assert [fork[name] for name in names] == [62.0, 12.0, 70.0]
    said(invoke("switch-points", "forked").stdout)


def test_switch_points_fit_a_terminal_each_workload_with_its_own_table(
    invoke: Invoke, url: str, said: Said
) -> None:
    lines = on_terminal(url, 80, "switch-points", "generated")
    assert max(map(len, lines)) <= 80
    said(*lines, invoke("switch-points").stdout)


def test_trials_as_json(invoke: Invoke, url: str) -> None:
    text = invoke("trials", "--json").stdout
    documents = json.loads(text)
    assert invoke("trials", "--format", "json").stdout == text
    keys = KEYS | set(TRIAL_FACTS.columns.keys()) | {"end", "parent_trial_number", "plateau_value"}
    assert all(set(document) == keys for document in documents)
    for document, trial in zip(documents, trials_of(url), strict=True):
        assert document["trial_id"] == trial.trial_id
        assert document["phases"] == [asdict(phase) for phase in trial.phases]
        began = trial.started_at.isoformat() if trial.started_at else None
        assert document["started_at"] == began


def test_a_dead_process_shows_in_json_and_is_stored_as_running(invoke: Invoke) -> None:
    states = {d["trial_id"]: d["state"] for d in invoke.answer("trials")}
    csv = pd.read_csv(io.StringIO(invoke("trials", "--format", "csv").stdout))
    stored = dict(zip(csv["trial_id"], csv["state"], strict=True))
    (stale,) = (number for number, state in states.items() if state == "stale")
    assert stored[stale] == "running"
    assert {**states, stale: "running"} == stored
    searches = {one["study"]: one for one in invoke.answer("status")}
    search = searches["under-way"]
    assert (search["in_flight_runs"], search["failed_runs"]) == (0, 2)  # another one had failed


@pytest.mark.parametrize("reference", ["generated", "nobody"])
@pytest.mark.parametrize("table", ["trials", "evaluations"])
def test_a_file_holds_what_a_frame_holds(
    invoke: Invoke, url: str, tmp_path: Path, table: frames.FrameName, reference: str
) -> None:
    options = [reference, *(["--evaluations"] if table == "evaluations" else [])]
    make = frames.trials if table == "trials" else frames.evaluations
    expected = make(url, workload=reference)
    assert (len(expected) > 0) == (reference == "generated")
    printed = {}
    for kind in ("parquet", "csv"):
        path = tmp_path / f"table.{kind}"
        result = invoke("trials", *options, "--format", kind, "-o", str(path))
        assert (result.exit_code, result.stdout) == (0, ""), result.stderr
        assert result.stderr == f"{table} written to {path}\n"
        printed[kind] = invoke("trials", *options, "--format", kind).stdout_bytes
        assert path.read_bytes() == printed[kind]
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(printed["parquet"])), expected)
    csv = pd.read_csv(io.BytesIO(printed["csv"]))
    assert list(csv.columns) == list(expected.columns)
    assert list(csv["trial_id"]) == list(expected["trial_id"])
    documents = invoke.answer("trials", *options)
    assert [document["trial_id"] for document in documents] == list(expected["trial_id"])


def test_parquet_is_not_for_a_terminal_and_it_alone_needs_an_extra(
    invoke: Invoke, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (only,) = on_terminal(url, 200, "trials", "--format", "parquet")
    assert only == "error: Parquet cannot be shown on a terminal; name a file with -o FILE"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "table.parquet"
    path.write_text("PAR1 old")
    line = error_line(invoke("trials", "--format", "parquet", "-o", str(path)))
    assert line.endswith("needs pyarrow, which is missing; run: pip install 'syncswitch[parquet]'")
    assert path.read_text() == "PAR1 old"
    monkeypatch.setitem(sys.modules, "pandas", None)
    for options in ([], ["--json"], ["--format", "csv"]):
        assert "recorded/b50-1" in invoke("trials", *options).stdout
    assert invoke.answer("switch-points")
    done = invoke("trials", "--format", "csv", "-o", "/no/such/folder/x")
    assert "cannot write the file /no/such/folder/x" in error_line(done)


def test_a_long_table_shows_the_newest(
    invoke: Invoke, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncswitch.cli.search.rows._MOST_ROWS", 3)
    lines = invoke("trials").stdout.splitlines()
    assert lines[-1] == f"the newest 3 of {len(trials_of(url))}; all of them: --format csv"
    assert sum("recorded" in line for line in lines) == 3
    start = "here; start one with: syncswitch-search run"
    # What is no workload cannot be started.
    assert f"no run of nobody {start} WORKLOAD\n" in invoke("trials", "nobody").stdout
    assert f"no run of no.py:job {start} WORKLOAD\n" in invoke("trials", "no.py:job").stdout
    assert f"no run of clicks {start} clicks\n" in invoke("trials", "clicks").stdout
    assert "no completed run of larger here" in invoke("switch-points", "larger").stdout
