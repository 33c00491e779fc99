"""Searches in processes of their own: several that share one, and what ends them."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import psutil
import pytest
import search_program
from command_line import OTHER, Invoke
from searches import policies_of, trials_of

from syncswitch.searcher.search.optuna_storage import check_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.flat import flat
from tests.processes import until
from tests.warm_program import WarmProcess

SEARCH = ["run", "generated", "--strategy", "paper", "--halvings", "4", "--runs", "1"]


def start(url: str, processes: int, delay_seconds: float, **environment: str) -> WarmProcess:
    """The first process is a fork; the others are started as a user's are."""
    folder = Path(search_program.__file__).parent
    return search_program.start(
        *[*SEARCH, "--storage", url, "--parallel-runs", str(processes)],
        GENERATED_DELAY_SECONDS=str(delay_seconds),
        PYTHONPATH=str(folder),
        **environment,
    )


def children_under_way(process: WarmProcess, url: str) -> list[psutil.Process]:
    """The processes that a search has started, once runs of two of them go on."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
        # Until there is a database.
        with contextlib.suppress(UserError):
            if len({row.process_id for row in trials_of(url) if row.state == "running"}) == 2:
                return psutil.Process(process.pid).children()
    raise AssertionError("the processes did not start")


def wait_until_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive


@pytest.mark.slow
def test_three_processes_find_what_one_finds_and_say_so(
    invoke: Invoke, url: str, sqlite_url: str, tmp_path: Path
) -> None:
    invoke.succeeds(*SEARCH, "--storage", sqlite_url)
    meeting = f"3:{tmp_path}"
    shared = start(url, 3, 0.1, GENERATED_MEETING=meeting)
    out, err = shared.communicate()
    assert shared.returncode == 0, err
    (policy,), (expected,) = policies_of(url), policies_of(sqlite_url)
    for name in ("switch_percent", "target_accuracy", "mean_accuracy", "training_seconds"):
        assert flat(policy)[name] == flat(expected)[name]
    runs = [(run.switch_percent, run.replicate) for run in policy.evidence]
    assert runs == [(run.switch_percent, run.replicate) for run in expected.evidence]
    rows = trials_of(url)
    assert len({row.process_id for row in rows}) == 3
    speculative = sum(row.speculative for row in rows)
    assert speculative
    assert f"{speculative} speculative run" in out
    assert "process 2: " in err
    assert "process 3: " in err
    assert all(row.state == "complete" or row.is_cancelled for row in rows)
    assert check_database(url) == []


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_and_the_same_command_goes_on(url: str, invoke: Invoke) -> None:
    process = start(url, 2, 200)
    children = children_under_way(process, url)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command continues" in err
    assert "process 2: error" not in err
    wait_until_gone(children)
    assert {row.state for row in trials_of(url)} == {"failed"}
    invoke.succeeds(*SEARCH, "--storage", url)


@pytest.mark.slow
def test_processes_do_not_outlive_the_first_one(url: str, invoke: Invoke) -> None:
    process = start(url, 2, 200)
    children = children_under_way(process, url)
    process.kill()
    process.communicate()
    wait_until_gone(children)
    invoke.succeeds(*SEARCH, "--storage", url)
    assert check_database(url) == []


def test_control_c_keeps_the_state_and_says_how_to_go_on(url: str, invoke: Invoke) -> None:
    process = search_program.start(
        "run", "digits", *OTHER, SYNCSWITCH_STORAGE=url, GENERATED_DELAY_SECONDS="0 60"
    )
    assert process.stderr.readline().startswith("[1/3]")
    until(lambda: "running" in invoke("trials").stdout)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "the same command continues" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    states = [trial["state"] for trial in invoke.answer("trials")]
    assert states == ["complete", "failed"]
    assert invoke.answer("status")[0]["state"] == "stopped"

    result = invoke.succeeds("run", "digits", *OTHER)
    assert result.stderr.splitlines()[0] == "continuing after 1 of at most 3 runs"
