"""Searches in processes of their own, which somebody stops or kills."""

from __future__ import annotations

import json
import signal
import time

from command_line import OTHER, Invoke, database_file
from search_program import start


def test_control_c_keeps_the_state_and_says_how_to_go_on(url: str, invoke: Invoke) -> None:
    process = start("run", "digits", *OTHER, SYNCSWITCH_STORAGE=url, GENERATED_DELAY_SECONDS="0 60")
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


def test_a_run_whose_process_is_dead_is_stale(url: str, invoke: Invoke) -> None:
    process = start("run", "digits", *OTHER, SYNCSWITCH_STORAGE=url, GENERATED_DELAY_SECONDS="60")
    deadline = time.monotonic() + 30
    while not (database_file(url).exists() and "running" in invoke("trials").stdout):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.kill()
    process.communicate()
    (trial,) = json.loads(invoke("trials", "--json").stdout)
    assert trial["state"] == "stale"
    assert "stale" in invoke("trials").stdout
    (search,) = json.loads(invoke("status", "--json").stdout)
    assert (search["in_flight_runs"], search["failed_runs"]) == (0, 1)
