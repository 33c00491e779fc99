"""The command `sweep`: its curve, which runs it makes, bad input, a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Invoke

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.trials.store import TrialStore
from tests.tiny_job import write_tiny_job

SWEEP = ["sweep", "generated", "--at", "100,25,0", "--runs", "2"]


def runs_in(url: str) -> list[tuple[int, str, float, int]]:
    with open_database(url, create=False) as database:
        rows = TrialStore(database).trials()
    return [(row.workers, row.first_protocol, row.switch_percent, row.replicate) for row in rows]


def test_the_curve_of_one_job(invoke: Invoke, url: str) -> None:
    done = invoke(*SWEEP)
    assert done.exit_code == 0, done.stderr
    _, _, first, quarter, nothing, _, compared = done.stdout.splitlines()
    assert first.split()[:7] == ["4", "bsp,asp", "100", "%", "2", "0", "2"]
    assert quarter.split()[:7] == ["4", "bsp,asp", "25", "%", "2", "0", "2"]
    assert quarter.split()[-2:] == ["55.0", "1.82"]
    assert nothing.split()[:7] == ["4", "bsp,asp", "0", "%", "2", "0", "0"]
    assert compared.startswith("Target on 4 workers: 0.94")
    assert compared.endswith(" (BSP alone); kept runs lose at most 0.01 of it.")
    made = runs_in(url)
    assert made == [(4, "bsp", percent, n) for percent in (100.0, 25.0, 0.0) for n in range(2)]
    with open_database(url, create=False) as database:
        rows = TrialStore(database).trials()
    assert [row.time_to_accuracy_seconds is None for row in rows][-2:] == [True, True]
    assert rows[0].target_accuracy == rows[5].target_accuracy is not None

    again = invoke(*SWEEP)
    assert (again.stdout, again.stderr) == (
        done.stdout,
        "this sweep is finished, with 6 runs\n",
    )
    more = invoke("sweep", "generated", "--at", "25,12.5", "--runs", "2")
    assert more.exit_code == 0, more.stderr
    assert runs_in(url) == [*made, (4, "bsp", 12.5, 0), (4, "bsp", 12.5, 1)]
    assert [line.split()[2] for line in more.stdout.splitlines()[2:5]] == ["100", "25", "12.5"]
    assert json.loads(invoke("policy", "list", "--json").stdout) == []


def test_other_orders_and_sizes_have_one_target_each(invoke: Invoke, url: str) -> None:
    done = invoke(
        *["sweep", "generated", "--at", "50", "--runs", "1", "--workers", "4,8", "--json"],
        *["--protocols", "asp,bsp", "--protocols", "bsp,ssp:3", "--protocols", "bsp,ssp:3"],
    )
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(s["workers"], s["protocols"], s["switch_percent"]) for s in found] == [
        row
        for workers in (4, 8)
        for row in (
            (workers, ["asp", "bsp"], 0.0),
            (workers, ["asp", "bsp"], 50.0),
            (workers, ["bsp", "ssp:3"], 50.0),
        )
    ]
    for rows in (found[:3], found[3:]):
        assert {s["target_accuracy"] for s in rows} == {rows[0]["mean_accuracy"]}
        assert rows[0]["speed_up"] == 1.0
        assert rows[2]["speed_up"] == pytest.approx(
            rows[0]["training_seconds"] / rows[2]["training_seconds"]
        )
        assert [s["kept_runs"] for s in rows] == [1, 1, 1]
    assert len(runs_in(url)) == 6
    assert done.stderr.splitlines()[0] == "generated on 4 workers, asp,bsp:"


def test_a_given_target_needs_no_run_of_its_own(invoke: Invoke, url: str) -> None:
    command = ["sweep", "generated", "--at", "25", "--runs", "1", "--target-accuracy", "0.97"]
    done = invoke(*command)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[2].split()[4:7] == ["1", "0", "0"]
    assert done.stdout.splitlines()[2].split()[-1] == "-"
    assert "0.9700 (as given)" in done.stdout
    assert [row["kept_runs"] for row in json.loads(invoke(*command, "--json").stdout)] == [0]
    assert runs_in(url) == [(4, "bsp", 25.0, 0)]


def test_points_that_diverge_are_answers_and_a_baseline_is_none(
    invoke: Invoke, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENERATED_DIVERGES_BELOW_PERCENT", "20")
    assert json.loads(invoke(*SWEEP, "--json").stdout)[-1]["diverged_runs"] == 2
    monkeypatch.setenv("GENERATED_DIVERGES_BELOW_PERCENT", "101")
    done = invoke(*SWEEP, "--workers", "8")
    assert done.exit_code == 2
    assert "learning rate is too high" in done.stderr.splitlines()[-1]
    assert len(runs_in(url)) == 6 + 2


def test_variants_are_jobs_of_their_own(invoke: Invoke, url: str, tmp_path: Path) -> None:
    short = f"{write_tiny_job(tmp_path)},total_worker_steps=16"
    sweep = ["sweep", short, "--trainer", "simulated", "--workers", "2", "--runs", "1"]
    done = invoke(*sweep, "--at", "50", "--variant", "momentum=0")
    assert done.exit_code == 0, done.stderr
    rows = [line.split()[:5] for line in done.stdout.splitlines()[2:5]]
    assert rows == [
        ["-", "2", "simulated", "bsp,asp", "100"],
        ["-", "2", "simulated", "bsp,asp", "50"],
        ["momentum=0", "2", "simulated", "bsp,asp", "50"],
    ]
    with open_database(url, create=False) as database:
        made = TrialStore(database).trials()
    assert len({row.fingerprint for row in made}) == 2


def test_guarded_runs_are_compared_with_guarded_ones(
    invoke: Invoke, url: str, tmp_path: Path
) -> None:
    short = f"{write_tiny_job(tmp_path)},total_worker_steps=16,evaluation_interval_worker_steps=2"
    sweep = ["sweep", short, "--trainer", "simulated", "--workers", "2", "--runs", "1"]
    guarded = invoke(*sweep, "--at", "25", "--guard", "--json")
    assert guarded.exit_code == 0, guarded.stderr
    assert [(s["switch_percent"], s["runs"]) for s in json.loads(guarded.stdout)] == [
        (100.0, 1),
        (25.0, 1),
    ]
    with open_database(url, create=False) as database:
        baseline, run = TrialStore(database).trials()
    assert baseline.guard == "off"
    assert run.guard in {"quiet", "alarmed"}
    assert invoke(*sweep, "--at", "25", "--guard", "--json").stdout == guarded.stdout

    plain = invoke(*sweep, "--at", "25,50", "--json")
    assert plain.exit_code == 0, plain.stderr
    with open_database(url, create=False) as database:
        made = TrialStore(database).trials()[2:]
    # What the guard let pass is as good as a run without one.
    known = [] if run.guard == "quiet" else [25.0]
    assert [row.switch_percent for row in made] == [*known, 50.0]
    assert [row.guard for row in made] == ["off"] * len(made)
    again = invoke(*sweep, "--at", "50", "--guard", "--json")
    assert [s["runs"] for s in json.loads(again.stdout)] == [1, 1]
    assert runs_in(url)[-1] == (2, "bsp", 50.0, 0)
    assert len(runs_in(url)) == 2 + len(made) + 1
