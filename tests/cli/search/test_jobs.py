"""Searches in processes of their own: several that share one, and what ends them."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from pathlib import Path

import psutil
import pytest
import search_program
from click.testing import CliRunner
from command_line import OTHER, Invoke

from syncswitch.cli.search.main import main
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.search.optuna_storage import check_database
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from tests.warm_program import WarmProcess

SEARCH = ["run", "generated", "--strategy", "paper", "--settings", "4", "--runs", "1"]


def start(url: str, jobs: int, delay_seconds: float, **environment: str) -> WarmProcess:
    """The first job is a fork; the others are started as a user's are."""
    folder = Path(search_program.__file__).parent
    return search_program.start(
        *[*SEARCH, "--storage", url, "--jobs", str(jobs)],
        GENERATED_DELAY_SECONDS=str(delay_seconds),
        PYTHONPATH=str(folder),
        **environment,
    )


def search_alone(url: str) -> None:
    """The same search in this process, to its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalTrainer, "job", search_program.generated_job)
        done = CliRunner().invoke(main, [*SEARCH, "--storage", url])
    assert done.exit_code == 0, done.stderr


def trials(url: str) -> list[StoredTrial]:
    with open_database(url, create=False) as database:
        return TrialStore(database).trials()


def children_under_way(process: WarmProcess, url: str) -> list[psutil.Process]:
    """The processes that a search has started, once runs of two of them go on."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
        # Until there is a database.
        with contextlib.suppress(UserError):
            if len({row.process_id for row in trials(url) if row.state == "running"}) == 2:
                return psutil.Process(process.pid).children()
    raise AssertionError("the jobs did not start")


def wait_until_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive


@pytest.mark.slow
def test_three_jobs_find_what_one_finds_and_say_so(
    url: str, sqlite_url: str, tmp_path: Path
) -> None:
    search_alone(sqlite_url)
    meeting = f"3:{tmp_path}"
    shared = start(url, 3, 0.1, GENERATED_MEETING=meeting)
    out, err = shared.communicate()
    assert shared.returncode == 0, err
    with open_database(url, create=False) as database:
        (policy,) = PolicyRegistry(database).policies()
    with open_database(sqlite_url, create=False) as database:
        (expected,) = PolicyRegistry(database).policies()
    for name in ("switch_percent", "target_accuracy", "mean_accuracy", "training_seconds"):
        assert getattr(policy, name) == getattr(expected, name)
    runs = [(run.switch_percent, run.replicate) for run in policy.evidence]
    assert runs == [(run.switch_percent, run.replicate) for run in expected.evidence]
    rows = trials(url)
    assert len({row.process_id for row in rows}) == 3
    speculative = sum(row.speculative for row in rows)
    assert speculative
    assert f"{speculative} speculative run" in out
    assert "job 2: " in err
    assert "job 3: " in err
    assert all(row.state == "complete" or row.is_cancelled for row in rows)
    assert check_database(url) == []


@pytest.mark.slow
def test_ctrl_c_ends_all_jobs_and_the_same_command_goes_on(url: str) -> None:
    process = start(url, 2, 20)
    children = children_under_way(process, url)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command continues" in err
    assert "job 2: error" not in err
    wait_until_gone(children)
    assert {row.state for row in trials(url)} == {"failed"}
    search_alone(url)


@pytest.mark.slow
def test_jobs_do_not_outlive_the_first_one(url: str) -> None:
    process = start(url, 2, 20)
    children = children_under_way(process, url)
    process.kill()
    process.communicate()
    wait_until_gone(children)
    search_alone(url)
    assert check_database(url) == []


def test_control_c_keeps_the_state_and_says_how_to_go_on(url: str, invoke: Invoke) -> None:
    process = search_program.start(
        "run", "digits", *OTHER, SYNCSWITCH_STORAGE=url, GENERATED_DELAY_SECONDS="0 60"
    )
    assert process.stderr.readline().startswith("[1/3]")
    deadline = time.monotonic() + 30
    while "running" not in invoke("trials").stdout:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "the same command continues" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    states = [trial["state"] for trial in json.loads(invoke("trials", "--json").stdout)]
    assert states == ["complete", "failed"]
    assert json.loads(invoke("status", "--json").stdout)[0]["state"] == "stopped"

    result = invoke("run", "digits", *OTHER)
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == "continuing after 1 of at most 3 runs"
