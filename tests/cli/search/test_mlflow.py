"""`--mlflow` of `run` and `sweep`, and `export`: MLflow says what the database says."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import LEAST, OTHER, Invoke, error_line
from generated_trainer import identity
from searches import search

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.file import policy_text, read_policy_file
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.flat import flat
from syncswitch.storage.trials.store import TrialStore
from tests.records import changed

if TYPE_CHECKING:  # it takes seconds, and one process of several runs these tests
    from mlflow import MlflowClient
    from mlflow.entities import Run

pytestmark = pytest.mark.usefixtures("our_tables")


def client_of(uri: str) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(uri)


def runs_on(uri: str) -> dict[str, Run]:
    """All runs by their keys."""
    client = client_of(uri)
    found = client.search_runs([one.experiment_id for one in client.search_experiments()])
    runs = {run.data.tags["syncswitch.key"]: run for run in found}
    assert len(runs) == len(found)
    return runs


def check_same(mlflow_uri: str, url: str) -> None:
    """MLflow has the trials, curves and policies of the database, and nothing else."""
    import mlflow

    client, runs = client_of(mlflow_uri), runs_on(mlflow_uri)
    with open_database(url, create=False) as database:
        store, registry = TrialStore(database), PolicyRegistry(database)
        rows = store.trials()
        curves = {fp: store.curves(fp) for fp in {row.job.fingerprint for row in rows}}
        entries = registry.entries()
        workloads = {fp: registry.workload(fp) for fp in curves}
    keys = {f"trial {row.origin.trial_number} of {row.origin.study}" for row in rows}
    assert {key for key in runs if key.startswith("trial")} == keys
    for row in rows:
        run = runs[f"trial {row.origin.trial_number} of {row.origin.study}"]
        parent = runs[f"search {row.origin.study}"]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.info.status == "FINISHED"
        assert run.info.start_time <= run.info.end_time
        assert run.data.params["switch_percent"] == f"{row.switch_percent:g}"
        assert run.data.params["seed"] == str(row.seed)
        for name in ("converged_accuracy", "training_seconds", "diverged", "inherited_seconds"):
            assert run.data.metrics[name] == flat(row)[name]
        for phase in row.phases:
            speed = run.data.metrics[f"{phase.protocol}_worker_steps_per_second"]
            assert speed == phase.worker_steps_per_second
        curve = curves[row.job.fingerprint][row.trial_id]
        for name in ("accuracy", "training_loss", "elapsed_seconds"):
            points = client.get_metric_history(run.info.run_id, name)
            known = [(one.worker_step, getattr(one, name)) for one in curve]
            assert sorted((point.step, point.value) for point in points) == known
    for entry in entries:
        policy, workload = entry.policy, workloads[entry.policy.job.fingerprint]
        assert workload is not None
        name = f"syncswitch-{policy.job.workload}-{policy.job.fingerprint[:8]}"
        version = client.get_model_version(name, str(policy.version))
        assert tuple(sorted(version.aliases)) == entry.aliases
        assert version.run_id == runs[f"search {policy.study}"].info.run_id
        mlflow.set_tracking_uri(mlflow_uri)
        folder = mlflow.artifacts.download_artifacts(f"models:/{name}/{policy.version}")
        (path,) = Path(folder).iterdir()
        assert path.read_text() == policy_text(policy, workload)
        assert read_policy_file(path).policy == policy


@pytest.fixture
def away() -> str:
    """Nobody is there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def without_storage(text: str) -> str:
    """Of a search in another database than usual, what it would say of the usual one."""
    return re.sub(r" --storage \S+", "", text)


def without_mlflow(text: str) -> str:
    """What others say than MLflow, whose version 3.0 logs that it opens a file."""
    return re.sub(r"^.*\bINFO\b.*\n", "", text, flags=re.MULTILINE)


def test_what_is_trained_is_on_mlflow_as_in_the_database(
    invoke: Invoke, url: str, mlflow_uri: str
) -> None:
    plain = invoke("run", "digits", *OTHER, "--storage", url + ".plain")
    result = invoke.succeeds("run", "digits", *OTHER, "--mlflow", mlflow_uri)
    said = without_mlflow(result.stderr)
    assert (result.stdout, said) == (without_storage(plain.stdout), plain.stderr)
    check_same(mlflow_uri, url)
    (search,) = (run for key, run in runs_on(mlflow_uri).items() if key.startswith("search"))
    assert (search.info.status, search.data.params["strategy"]) == ("FINISHED", "paper")
    assert search.data.metrics["policy/switch_percent"] == 25
    points = ["--at", "100,25", "--runs", "1", "--workers", "8"]
    invoke.succeeds("sweep", "digits", *points, "--mlflow", mlflow_uri)
    check_same(mlflow_uri, url)


@pytest.mark.usefixtures("two_versions")
def test_earlier_searches_are_exported_once_and_what_was_half_copied_is_completed(
    invoke: Invoke, url: str, mlflow_uri: str
) -> None:
    assert [one["runs"] for one in invoke.answer("export", "--mlflow", mlflow_uri)] == [13]
    client = client_of(mlflow_uri)
    runs = runs_on(mlflow_uri)
    invoke.succeeds("export", "generated", "--mlflow", mlflow_uri)
    again = {key: run.to_dictionary() for key, run in runs_on(mlflow_uri).items()}
    assert again == {key: run.to_dictionary() for key, run in runs.items()}
    lost, half = [run for key, run in runs.items() if key.startswith("trial")][:2]
    client.delete_run(lost.info.run_id)
    client.update_run(half.info.run_id, status="RUNNING")
    invoke.succeeds("policy", "rollback", "generated")
    invoke.succeeds("export", "--mlflow", mlflow_uri)
    check_same(mlflow_uri, url)


def test_a_server_that_is_away_costs_one_line(
    invoke: Invoke, url: str, mlflow_uri: str, away: str
) -> None:
    plain = invoke("run", "digits", *LEAST, "--storage", url + ".plain")
    result = invoke.succeeds("run", "digits", *LEAST, "--mlflow", away)
    assert result.stdout == without_storage(plain.stdout)
    (line,) = set(result.stderr.splitlines()) - set(plain.stderr.splitlines())
    assert line == (
        f"MLflow at {away} does not answer; copy the runs later, with: syncswitch-search"
        f" export generated --mlflow {away}"
    )
    invoke.succeeds("export", "generated", "--mlflow", mlflow_uri)
    check_same(mlflow_uri, url)


def test_a_server_that_never_answers_is_asked_once(invoke: Invoke) -> None:
    """And by us, as MLflow waits for long, each time."""
    invoke("run", "digits", *LEAST)
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        result = invoke("export", "--mlflow", uri)
        assert result.exit_code == 1
        assert error_line(result) == f"error: MLflow at {uri} does not answer"
        connection, _ = server.accept()
        with connection:
            assert connection.recv(4) == b"HEAD"
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_names_may_have_quotes(url: str, mlflow_uri: str) -> None:
    from syncswitch.storage.export.mlflow import copy_job

    job = changed(identity(), name='it\'s "mine" & 50 %')
    search(url, None, SearchPlan(PaperStrategy(halvings=1, runs=1)), job=job)
    with open_database(url, create=False) as database:
        workload = PolicyRegistry(database).workload(job.fingerprint)
        assert workload is not None
        assert copy_job(database, mlflow_uri, workload) == len(runs_on(mlflow_uri)) > 1
    (model,) = client_of(mlflow_uri).search_registered_models()
    assert model.name == f"syncswitch-it-s -mine- - 50 --{job.fingerprint[:8]}"


def test_what_cannot_be_exported_is_one_line(
    invoke: Invoke, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(status: int, *words: str) -> str:
        result = invoke(*words)
        assert result.exit_code == status
        return error_line(result)

    invoke("run", "digits", *LEAST)
    line = refused(1, "export", "--mlflow", away.replace("//", "//me:secret@"))
    assert line == f"error: MLflow at {away.replace('//', '//***@')} does not answer"
    line = refused(2, "export", "--mlflow", "localhost:5000")
    assert "'localhost:5000': it is not a tracking URI of MLflow" in line
    line = refused(2, "export", "nobody", "--mlflow", "http://localhost:1")
    assert "no search of nobody here" in line
    monkeypatch.setitem(sys.modules, "mlflow", None)
    line = refused(2, "run", "digits", *LEAST, "--mlflow", "http://localhost:5000")
    assert "pip install 'syncswitch[mlflow]'" in line
