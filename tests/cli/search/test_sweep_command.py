"""The command `sweep`: its curve, which runs it makes, bad input, a kill."""

from __future__ import annotations

import json
import shlex
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from command_line import Invoke, error_line, export
from generated_trainer import identity
from searches import trials_of

from syncswitch.cli.words import OPTION_WORDS
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.training.policy import RunRequest, SwitchChoice, choose
from syncswitch.searcher.training.uses import RunRecorder
from syncswitch.storage.errors import PolicyError
from tests.searcher.policies import published
from tests.tiny_job import write_tiny_job
from tests.wording import Said

SWEEP = ["sweep", "generated", "--at", "100,25,0", "--runs", "2"]


def runs_in(url: str) -> list[tuple[Any, ...]]:
    of = attrgetter("job.workers", "job.first_protocol", "switch_percent", "replicate")
    return list(map(of, trials_of(url)))


def test_the_curve_of_one_job(invoke: Invoke, url: str, said: Said) -> None:
    done = invoke.succeeds(*SWEEP)
    said(done.stdout)
    made = runs_in(url)
    assert made == [(4, "bsp", percent, n) for percent in (100.0, 25.0, 0.0) for n in range(2)]
    rows = trials_of(url)
    assert [row.target.seconds is None for row in rows][-2:] == [True, True]
    assert rows[0].target.accuracy == rows[5].target.accuracy is not None

    again = invoke(*SWEEP)
    assert (again.stdout, again.stderr) == (done.stdout, "this sweep is finished, with 6 runs\n")
    more = invoke.succeeds("sweep", "generated", "--at", "25,12.5", "--runs", "2")
    assert runs_in(url) == [*made, (4, "bsp", 12.5, 0), (4, "bsp", 12.5, 1)]
    assert [line.split()[2] for line in more.stdout.splitlines()[2:5]] == ["100", "25", "12.5"]
    assert invoke.answer("policy", "list") == []


def test_all_pairs_and_orders_have_one_target(invoke: Invoke, url: str) -> None:
    done = invoke.succeeds(
        *["sweep", "generated", "--at", "50", "--runs", "1", "--workers", "8", "--json"],
        *["--protocols", "asp,bsp", "--protocols", "bsp,ssp:3", "--protocols", "bsp,ssp:3"],
    )
    rows = json.loads(done.stdout)
    assert [(s["workers"], s["protocols"], s["switch_percent"]) for s in rows] == [
        (8, ["asp", "bsp"], 0.0),
        (8, ["asp", "bsp"], 50.0),
        (8, ["bsp", "ssp:3"], 50.0),
    ]
    assert {s["target_accuracy"] for s in rows} == {rows[0]["mean_accuracy"]}
    assert rows[0]["speed_up"] == 1.0
    assert rows[2]["speed_up"] == pytest.approx(
        rows[0]["training_seconds"] / rows[2]["training_seconds"]
    )
    assert [s["kept_runs"] for s in rows] == [1, 1, 1]
    assert len(runs_in(url)) == 3
    assert done.stderr.splitlines()[0] == "generated on 8 workers, asp,bsp:"


def test_a_given_target_needs_no_run_of_its_own(invoke: Invoke, url: str, said: Said) -> None:
    command = ["sweep", "generated", "--at", "25", "--runs", "1", "--target-accuracy", "0.97"]
    said(invoke.succeeds(*command).stdout)
    assert [row["kept_runs"] for row in invoke.answer(*command)] == [0]
    assert runs_in(url) == [(4, "bsp", 25.0, 0)]


def test_points_that_diverge_are_answers_and_a_baseline_is_none(
    invoke: Invoke, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENERATED_DIVERGES_BELOW_PERCENT", "20")
    assert invoke.answer(*SWEEP)[-1]["diverged_runs"] == 2
    monkeypatch.setenv("GENERATED_DIVERGES_BELOW_PERCENT", "101")
    # One may be bad luck; after two nobody has to ask again.
    for points in ("100,25,0", "100,25,0", "50"):
        done = invoke("sweep", "generated", "--at", points, "--runs", "2", "--workers", "8")
        assert done.exit_code == 2
        assert "lower the learning rate" in done.stderr.splitlines()[-1]
        assert len(runs_in(url)) == 6 + 2


def test_guarded_runs_are_compared_with_guarded_ones(
    invoke: Invoke, url: str, tmp_path: Path
) -> None:
    short = f"{write_tiny_job(tmp_path)},total_worker_steps=16,evaluation_interval_worker_steps=2"
    sweep = ["sweep", short, "--trainer", "simulated", "--workers", "2", "--runs", "1"]
    guarded = invoke.succeeds(*sweep, "--at", "25", "--guard", "--json")
    assert [(s["switch_percent"], s["runs"]) for s in json.loads(guarded.stdout)] == [
        (100.0, 1),
        (25.0, 1),
    ]
    baseline, run = trials_of(url)
    assert baseline.guard.state == "off"
    assert run.guard.state in {"quiet", "alarmed"}
    assert invoke(*sweep, "--at", "25", "--guard", "--json").stdout == guarded.stdout

    invoke.succeeds(*sweep, "--at", "25,50", "--json")
    made = trials_of(url)[2:]
    # What the guard let pass is as good as a run without one.
    known = [] if run.guard.state == "quiet" else [25.0]
    assert [row.switch_percent for row in made] == [*known, 50.0]
    assert [row.guard.state for row in made] == ["off"] * len(made)
    assert [s["runs"] for s in invoke.answer(*sweep, "--at", "50", "--guard")] == [1, 1]
    assert runs_in(url)[-1] == (2, "bsp", 50.0, 0)
    assert len(runs_in(url)) == 2 + len(made) + 1


LARGER = ["sweep", "generated", "--policy", "generated", "--workers", "8"]


@pytest.mark.usefixtures("one_version")
def test_a_policy_on_another_cluster(invoke: Invoke, url: str, said: Said) -> None:
    before = runs_in(url)
    done = invoke.succeeds(*LARGER, "--runs", "2")
    said(done.stdout)
    made = runs_in(url)[len(before) :]
    assert made == [(8, "bsp", percent, n) for percent in (100.0, 12.5) for n in range(2)]
    for more in ([], ["--at", "100"]):  # the policy's own switch point is trained at anyway
        again = invoke(*LARGER, "--runs", "2", *more)
        assert again.stdout == done.stdout
        assert again.stderr == "this sweep is finished, with 4 runs\n"
    assert len(invoke.answer("policy", "list")) == 1


@pytest.mark.usefixtures("two_versions")
def test_a_policy_beside_the_jobs_own(invoke: Invoke, tmp_path: Path, said: Said) -> None:
    # Version 2, the current one, was found with one run of each switch point, the first with two.
    file = export(invoke, tmp_path / "policy", version="1")  # a file by any name
    command = ["sweep", "generated", "--policy", str(file), "--runs", "2"]
    said(invoke.succeeds(*command).stdout)
    names = [row["policies"] for row in invoke.answer(*command)]
    assert names == [[], ["generated@1"], ["generated@2 (its own)"]]
    both = ["sweep", "generated", "--policy", "generated@1", "--policy", "generated@2"]
    found = invoke.answer(*both, "--runs", "2")
    assert [(row["policies"], row["keeps_accuracy"]) for row in found] == [
        ([], True),
        (["generated@1"], True),
        (["generated@2"], True),
    ]


@pytest.mark.usefixtures("one_version")
def test_a_policy_that_diverges_is_an_answer(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setenv("GENERATED_DIVERGES_BELOW_PERCENT", "20")
    said(invoke.succeeds(*LARGER, "--runs", "1").stdout)
    row = invoke.answer(*LARGER, "--runs", "1")[-1]
    assert (row["keeps_accuracy"], row["kept_runs"], row["speed_up"]) == (False, 0, None)


@pytest.mark.usefixtures("one_version")
def test_runs_under_other_conditions_are_other_runs(invoke: Invoke, url: str) -> None:
    chosen = ["--online", "elastic", "--inject", "moderate"]
    command = [*LARGER, "--runs", "1"]
    invoke.succeeds(*command)
    done = invoke.succeeds(*command, *chosen)
    injections = "; ".join(
        f"straggler:worker={worker},at={at}%,for=1.5625%,delay=30ms"
        for worker in (6, 7)
        for at in (0.78125, 3.90625, 7.03125, 10.15625)
    )
    assert done.stdout.splitlines()[-1] == (
        f"All runs trained under these conditions: elastic, {injections}."
    )
    made = runs_in(url)
    assert [percent for _, _, percent, _ in made[-4:]] == [100.0, 12.5, 100.0, 12.5]
    found = invoke.answer(*command, *chosen)
    assert found[0]["conditions"] == {
        "online": "elastic",
        "switch_mechanism": "hot",
        "injections": injections.split("; "),
    }
    assert runs_in(url) == made


def test_the_hint_about_a_simulated_policy_can_be_run_as_it_is(invoke: Invoke, url: str) -> None:
    job = identity(name="digits", simulated_cluster="5" * 64)
    published(url, job)
    wanted = RunRequest(
        LocalTrainer(),
        "digits",
        None,
        None,
        None,
        RunRecorder(url, print),
        SwitchChoice(learn=False),
    )
    with pytest.raises(PolicyError) as caught:
        choose(wanted)
    said = OPTION_WORDS.say(caught.value)
    hint = said.split("try it on the real job with: ")[1].split(", or ")[0]
    program, *arguments = shlex.split(hint)
    assert program == "syncswitch-search"
    done = invoke.succeeds(*arguments, "--runs", "1")
    assert {workers for workers, *_ in runs_in(url)} == {4}
    assert len([line for line in done.stderr.splitlines() if line.startswith("[")]) == 2


@pytest.mark.usefixtures("two_clusters")
def test_bad_input_is_one_line_and_makes_no_run(
    invoke: Invoke, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.chdir(tmp_path)
    file = export(invoke, tmp_path / "altered.json", "--workers", "4")
    text = file.read_text().replace('"switch_percent": 12.5', '"switch_percent": 3.125', 1)
    file.write_text(text)
    before, job = runs_in(url), identity().fingerprint[:12]
    for arguments in (
        "nothing generated",
        "generated@9 generated",
        "generated@ generated",
        "generated generated",
        "no.json generated",
        "altered.json generated",
        "JOB generated --protocols bsp",
        "JOB generated --trainer replay",
        "JOB digits --trainer simulated --profile x",
        "JOB digits --trainer simulated --protocols ds-sync:3,asp",
        "JOB generated --protocols asp,bsp --online greedy",
        "JOB generated --inject worse",
        "JOB generated --inject kill:worker=9,at=1%",
        "JOB generated --inject kill:ps,at=1%",
        "JOB generated --workers 3000 --at 99",
        "JOB digits --trainer simulated --inject hang:ps,at=1%",
        "JOB x --trainer replay --recordings r --inject mild",
    ):
        done = invoke("sweep", "--policy", *arguments.replace("JOB", job).split())
        assert done.exit_code == 2
        said(error_line(done))
    assert runs_in(url) == before
