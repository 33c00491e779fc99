"""The command `evaluate`: tables and JSON, which policy is meant, bad input, a real cluster."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Invoke, error_line, export
from generated_trainer import identity

from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.training.policy import Wanted, named_policies, policies_of_cluster
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.trials.store import TrialStore
from tests.storage.conftest import POLICY, SEARCH

LARGER = ["generated", "--workers", "8"]
FINGERPRINT = identity().fingerprint[:12]


def runs_in(url: str) -> list[tuple[int, float, int, str]]:
    with open_database(url, create=False) as database:
        rows = TrialStore(database).trials()
    return [(row.workers, row.switch_percent, row.replicate, row.state) for row in rows]


@pytest.mark.usefixtures("one_version")
def test_on_another_cluster(invoke: Invoke, url: str) -> None:
    before = runs_in(url)
    done = invoke("evaluate", "generated", *LARGER, "--runs", "2")
    assert done.exit_code == 0, done.stderr
    header, _, foreign, baseline, _, verdict = done.stdout.splitlines()
    assert header.split("  ")[0] == "policy"
    assert foreign.split()[:8] == ["generated", "version", "1", "12.5", "%", "2", "0", "2"]
    assert foreign.split()[-2:] == ["47.5", "2.11"]
    assert baseline.split()[:5] == ["BSP", "alone", "100", "%", "2"]
    assert baseline.split()[-2:] == ["100.0", "1.00"]
    assert verdict.startswith(
        "The policy of generated for 4 workers (version 1) keeps the accuracy of generated on 8"
        " workers: 0.9"
    )
    assert verdict.endswith("with BSP alone (2 of 2 runs lose at most 0.01), 2.11 times as fast.")
    assert len(done.stderr.splitlines()) == 4
    assert done.stderr.startswith("[1/4] 100 % BSP, run 1 of 2: accuracy 0.9")
    made = runs_in(url)
    assert made[: len(before)] == before
    assert made[len(before) :] == [
        (8, percent, number, "complete") for percent in (100.0, 12.5) for number in range(2)
    ]

    again = invoke("evaluate", "generated", *LARGER, "--runs", "2")
    assert again.stdout == done.stdout
    assert again.stderr == "this evaluation is finished, with 4 runs\n"
    assert runs_in(url) == made
    (line,) = [line for line in invoke("status").stdout.splitlines() if "4 of 4" in line]
    assert line.split()[1:] == ["done", "4", "of", "4", "0", "0", "-"]
    assert len(json.loads(invoke("policy", "list", "--json").stdout)) == 1


@pytest.mark.usefixtures("two_versions")
def test_several_policies_on_several_jobs(invoke: Invoke, url: str) -> None:
    before = runs_in(url)
    matrix = ["evaluate", "generated@1", "generated,momentum=0", "--workers", "8", "--runs", "1"]
    matrix += ["--also-policy", "generated@2", "--also-workload", "generated"]
    done = invoke(*matrix)
    assert done.exit_code == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert [(row[0], row[1], row[3], row[-2], row[-1]) for row in rows] == [
        ("generated", "generated", percent, speed_up, "yes")
        for percent, speed_up in (("12.5", "2.11"), ("25", "1.82"))
        for _ in range(2)
    ]
    # The baseline is made once for all of them: here both jobs are one.
    made = runs_in(url)[len(before) :]
    assert [percent for _, percent, *_ in made] == [100.0, 12.5, 25.0]
    found = json.loads(invoke(*matrix, "--json").stdout)
    assert [one["policy"]["version"] for one in found] == [1, 1, 2, 2]
    assert "--jobs is for one POLICY" in error_line(invoke(*matrix, "--jobs", "2"))


@pytest.mark.usefixtures("two_versions")
def test_against_the_jobs_own_policy(invoke: Invoke, tmp_path: Path) -> None:
    # Version 2, the current one, was found with one run of each switch point, the first with two.
    file = export(invoke, tmp_path / "policy", version="1")  # a file by any name
    done = invoke("evaluate", str(file), "generated", "--runs", "2", "--json")
    found = json.loads(done.stdout)
    assert [s["role"] for s in found["switch_points"]] == ["policy", "own", "baseline"]
    assert [s["switch_percent"] for s in found["switch_points"]] == [12.5, 25.0, 100.0]
    assert [s["runs"] for s in found["switch_points"]] == [2, 2, 2]
    assert (found["own_policy_version"], found["new_runs"]) == (2, 0)
    assert found["policy"]["fingerprint"] == found["fingerprint"]
    mine, own, first = (s["speed_up"] for s in found["switch_points"])
    assert found["share_of_own_speed_up"] == pytest.approx(mine / own)
    assert first == 1.0
    text = invoke("evaluate", "generated@1", "generated", "--runs", "2").stdout
    assert "2.11 times as fast: 116 % of the 1.82 times that its own policy gives." in text
    assert "its own, version 2" in text


@pytest.mark.usefixtures("one_version")
def test_what_does_not_keep_the_accuracy_is_an_answer_too(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENERATED_DIVERGES_BELOW_PERCENT", "20")
    done = invoke("evaluate", "generated", *LARGER, "--runs", "1")
    assert done.exit_code == 0
    assert (
        "does not keep the accuracy of generated on 8 workers: 1 of 1 run diverged." in done.stdout
    )
    assert json.loads(invoke("evaluate", "generated", *LARGER, "--runs", "1", "--json").stdout)[
        "switch_points"
    ][0] == {
        "role": "policy",
        "switch_percent": 12.5,
        "runs": 1,
        "diverged_runs": 1,
        "mean_accuracy": None,
        "mean_value": None,
        "accuracy_half_width": None,
        "training_seconds": None,
        "accuracies": [],
        "values": [],
        "seconds": [],
        "kept_runs": 0,
        "speed_up": None,
        "speed_up_low": None,
        "speed_up_high": None,
    }


def test_the_hint_about_a_simulated_policy_can_be_run_as_it_is(invoke: Invoke, url: str) -> None:
    job = identity(name="digits", simulated_cluster="5" * 64)
    with open_database(url, create=True) as database:
        search = replace(SEARCH, fingerprint=job.fingerprint)
        TrialStore(database).register(job, "digits", search)
        policy = replace(POLICY, fingerprint=job.fingerprint, study=search.study)
        PolicyRegistry(database).publish(policy)
    wanted = Wanted(LocalTrainer(), "digits", None, None, None, url, lambda *_: None, print)
    with pytest.raises(PolicyError) as caught:
        policies_of_cluster(wanted, "current", named_policies("digits", "current", url))
    hint = str(caught.value).split("try it on the real job with: ")[1].split("; or ")[0]
    program, *arguments = shlex.split(hint)
    assert program == "syncswitch-search"
    done = invoke(*arguments, "--runs", "1")
    assert done.exit_code == 0, done.stderr
    assert {workers for workers, *_ in runs_in(url)} == {4}
    assert len([line for line in done.stderr.splitlines() if line.startswith("[")]) == 2


@pytest.mark.usefixtures("one_version")
def test_runs_under_other_conditions_are_other_runs(invoke: Invoke, url: str) -> None:
    chosen = ["--online", "elastic", "--inject", "moderate"]
    command = ["evaluate", "generated", *LARGER, "--runs", "1"]
    assert invoke(*command).exit_code == 0
    done = invoke(*command, *chosen)
    assert done.exit_code == 0, done.stderr
    injections = "; ".join(
        f"straggler:worker={worker},at={at}%,for=1.5625%,delay=30ms"
        for worker in (6, 7)
        for at in (0.78125, 3.90625, 7.03125, 10.15625)
    )
    assert done.stdout.splitlines()[-1] == (
        f"All runs trained under these conditions: elastic, {injections}."
    )
    made = runs_in(url)
    assert [percent for _, percent, *_ in made[-4:]] == [100.0, 12.5, 100.0, 12.5]
    found = json.loads(invoke(*command, *chosen, "--json").stdout)
    assert found["new_runs"] == 2
    assert found["conditions"] == {
        "online": "elastic",
        "switch_mechanism": "hot",
        "injections": injections.split("; "),
    }
    assert runs_in(url) == made


@pytest.mark.usefixtures("two_clusters")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing", "generated"], "no policy 'nothing'; give a policy file (.json), or WORKLOAD"),
        (["generated@9", "generated"], "no policy 'generated@9' (versions and aliases of"),
        (["generated@", "generated"], "'generated': 1, current)"),
        (["generated", "generated"], "2 policies of 'generated' fit: 8 workers"),
        (["no.json", "generated"], "cannot read the policy file no.json"),
        (["altered.json", "generated"], "policy file altered.json was altered"),
        ([FINGERPRINT, "generated", "--protocols", "bsp"], "--protocols is 'bsp'"),
        ([FINGERPRINT, "generated", "--trainer", "replay"], "add --recordings URL"),
        ([FINGERPRINT, "digits", "--trainer", "simulated", "--profile", "x"], "profile 'x'"),
        (
            [FINGERPRINT, "digits", "--trainer", "simulated", "--protocols", "ds-sync:3,asp"],
            "protocol 'ds-sync:3' cannot be used with --workers 4",
        ),
        (
            [FINGERPRINT, "generated", "--protocols", "asp,bsp", "--online", "greedy"],
            "--online greedy acts while workers wait for each other",
        ),
        ([FINGERPRINT, "generated", "--inject", "worse"], "--inject is 'worse': give an"),
        ([FINGERPRINT, "generated", "--inject", "kill:worker=9,at=1%"], "numbered from 0 to 3"),
        ([FINGERPRINT, "generated", "--inject", "kill:ps,at=1%"], "use --launcher processes"),
        (
            [FINGERPRINT, "digits", "--trainer", "simulated", "--inject", "hang:ps,at=1%"],
            "a simulated cluster only supports stragglers and kill:worker",
        ),
        (
            [FINGERPRINT, "x", "--trainer", "replay", "--recordings", "r", "--inject", "mild"],
            "--inject cannot be used: --trainer replay trains nothing",
        ),
    ],
)
def test_bad_input_is_one_line_and_makes_no_run(
    invoke: Invoke,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "altered.json" in arguments:
        file = export(invoke, tmp_path / "altered.json", "--workers", "4")
        text = file.read_text().replace('"switch_percent": 12.5', '"switch_percent": 3.125', 1)
        file.write_text(text)
    before = runs_in(url)
    done = invoke("evaluate", *arguments)
    assert done.exit_code == 2
    assert said in error_line(done)
    assert runs_in(url) == before


@pytest.mark.usefixtures("one_version")
def test_a_baseline_that_diverges_is_one_line(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENERATED_DIVERGES_BELOW_PERCENT", "101")
    done = invoke("evaluate", "generated", *LARGER)
    assert done.exit_code == 2
    assert "learning rate is too high" in done.stderr.splitlines()[-1]
    assert "baseline diverged" in invoke("status").stdout
