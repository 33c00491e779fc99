"""Optuna's own tools on the database of a search: its command line, its dashboard in a browser."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna.cli
import pytest
from generated_trainer import GeneratedTrainer, identity

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import Patience, Search
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import driver_url
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from tests.private_network import free_ports

PLAN = SearchPlan(PaperStrategy(settings=3, runs=2))
COMPLETE = 7  # the last switch point diverges, so that its repeat is not made
TRIALS = COMPLETE + 1  # the first run is lost, and made again
PATIENCE_SECONDS = 60


@pytest.fixture
def policy(url: str, our_tables: None) -> TimingPolicy:
    """What a search published in the database."""
    trainer = GeneratedTrainer(failures=1, diverges_below_percent=20)
    patience = Patience(poll_seconds=0.01, retry_seconds=0.0)
    with open_database(url, create=True) as database:
        return Search(database, identity(), PLAN, lambda: trainer, patience=patience).run().policy


def rows(url: str) -> list[StoredTrial]:
    with open_database(url, create=False) as database:
        return TrialStore(database).trials()


def installed(program: str) -> str:
    """A program that came with a Python package."""
    return str(Path(sys.executable).with_name(program))


def optuna_says(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["optuna", *arguments, "--format", "json"])
        assert optuna.cli.main() == 0
    return json.loads(capsys.readouterr().out)


def test_optunas_command_line_lists_the_search_and_its_trials(
    url: str, policy: TimingPolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    (study,) = optuna_says(capsys, "studies", "--storage", driver_url(url))
    assert (study["name"], study["n_trials"]) == (policy.study, TRIALS)
    assert study["direction"] == ["MAXIMIZE"]
    assert study["user_attrs"] == {
        "workload": "generated",
        "workers": 4,
        "protocols": "bsp,asp",
        "strategy": "paper",
        "policy_switch_percent": policy.switch_percent,
    }
    arguments = ("--study-name", policy.study, "--storage", driver_url(url))
    trials = optuna_says(capsys, "trials", *arguments)
    told = [
        (
            trial["number"],
            trial["params"]["switch_percent"],
            trial["value"]["converged_accuracy"],
            *(
                trial["user_attrs"][name]
                for name in ("replicate", "seed", "diverged", "training_seconds")
            ),
        )
        for trial in trials
        if trial["state"] == "COMPLETE"
    ]
    assert told == [
        (
            row.trial_number,
            row.switch_percent,
            row.converged_accuracy,
            row.replicate,
            row.seed,
            row.diverged,
            row.training_seconds,
        )
        for row in rows(url)
        if row.state == "complete"
    ]
    assert len(told) == COMPLETE
    assert [trial["state"] for trial in trials].count("FAIL") == 1


@pytest.fixture
def dashboard(url: str, policy: TimingPolicy, tmp_path: Path) -> Iterator[str]:
    """Address of a running dashboard; it ends with all its children."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    command = [installed("optuna-dashboard"), "--port", str(port), driver_url(url)]
    with (tmp_path / "dashboard.log").open("w+") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            wait_for(lambda: answers(address) or process.poll() is not None)
            assert process.poll() is None, Path(log.name).read_text()
            yield address
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(address: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(address, timeout=PATIENCE_SECONDS) as answer:
        return bool(answer.status == 200)
    return False


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.1)


@pytest.mark.slow
def test_optunas_dashboard_shows_the_search(
    browser: Any, dashboard: str, url: str, policy: TimingPolicy, tmp_path: Path
) -> None:
    def all_of(selector: str) -> list[Any]:
        found: list[Any] = browser.find_elements("css selector", selector)
        return found

    browser.get(dashboard)
    wait_for(lambda: policy.study in all_of("body")[0].text)
    (link,) = (a for a in all_of("a[href*='/studies/']") if policy.study in a.text)
    link.click()

    # One mark for each complete run.
    wait_for(lambda: len(all_of("#plot-history svg path.point")) == COMPLETE)
    wait_for(lambda: len(all_of("#graph-timeline svg .bars path")) == TRIALS)
    text = all_of("body")[0].text
    for words in (
        "switch_percent",
        "converged_accuracy",
        "workload generated",
        "workers 4",
        "protocols bsp,asp",
        f"policy_switch_percent {policy.switch_percent:g}",
    ):
        assert words in text
    browser.save_screenshot(str(tmp_path / "dashboard.png"))

    all_of("[role=combobox]")[0].click()
    wait_for(lambda: any("training_seconds" in a.text for a in all_of("[role=option]")))
    (seconds,) = (a for a in all_of("[role=option]") if "training_seconds" in a.text)
    seconds.click()
    wait_for(lambda: "training_seconds" in all_of("#plot-history svg .ytitle")[0].text)
    assert len(all_of("#plot-history svg path.point")) == COMPLETE
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []

    write_note(dashboard)
    assert len(rows(url)) == TRIALS, "the database is ours as before"


def write_note(address: str) -> None:
    """What the dashboard's page for notes sends."""
    request = urllib.request.Request(
        f"{address}/api/studies/1/note",
        data=json.dumps({"body": "the knee is at 50 %", "version": 1}).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        assert answer.status == 204
