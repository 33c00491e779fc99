"""A real job and the same one on a simulated cluster: nobody takes one for the other."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from command_line import Invoke, elsewhere, error_line

from tests.program import TINY_WORKLOAD
from tests.storage.filled import SIMULATED_CLUSTER, add_simulated
from tests.warm_program import run

WORDS = "4 simulated workers, bsp,asp"


@pytest.fixture
def both(one_version: None, url: str) -> None:
    """A policy for 4 workers, and a newer one for 4 simulated workers."""
    add_simulated(url)


@pytest.mark.usefixtures("both")
def test_every_table_and_json_says_which_workers_are_simulated(invoke: Invoke) -> None:
    header, _, real, simulated = invoke.succeeds("status").stdout.splitlines()
    assert header.split()[:2] == ["search", "workers"]
    assert real.split()[1:3] == ["4", "done"]
    assert simulated.split()[1:4] == ["4", "simulated", "done"]

    header, _, *trials = invoke.succeeds("trials").stdout.splitlines()
    assert header.split() == ["run", "workers", "candidate", "end", "accuracy", "seconds"]
    assert [line.split()[3] == "simulated" for line in trials].count(True) == 3
    assert [line.split()[2] for line in trials] == ["4"] * len(trials)

    lines = invoke.succeeds("switch-points").stdout.splitlines()
    titles = {line.split(" [")[0] for line in lines if "workers" in line}
    assert titles == {f"generated, 4{kind} workers, bsp,asp" for kind in (" simulated", "")}

    _, _, newest, oldest = invoke.succeeds("policy", "list").stdout.splitlines()
    assert "4 simulated bsp,asp" in newest
    assert "4 bsp,asp" in oldest

    for command in (["status"], ["trials"], ["switch-points"], ["policy", "list"]):
        found = invoke.answer(*command)
        digests = {one["simulated_cluster"] for one in found}
        assert digests == {SIMULATED_CLUSTER, None}
    csv = invoke("trials", "--format", "csv").stdout.splitlines()
    assert sum(f",4,{SIMULATED_CLUSTER},bsp," in line for line in csv) == 3


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize(
    "command", ["lookup", "show", "export", "diff generated", "revise", "alias x 1"]
)
def test_the_real_one_is_meant_where_nothing_says_which(invoke: Invoke, command: str) -> None:
    verb, *words = command.split()
    usual, real, simulated = (
        invoke("policy", verb, "generated", *words, *chosen)
        for chosen in ([], ["--cluster", "real"], ["--cluster", "simulated"])
    )
    notice, *_ = usual.stderr.splitlines()  # `diff` chooses twice
    taken = "this is the real one of 2 policies, for 4 workers, bsp,asp"
    assert notice.startswith(f"{taken}; others: {WORDS} [")
    assert (usual.exit_code, real.exit_code, simulated.exit_code) == (0, 0, 0)
    assert "of 2 policies" not in real.stderr + simulated.stderr
    assert usual.stdout == real.stdout.replace(" (was version 1)", "")
    if verb in ("lookup", "show"):
        assert (len(usual.stderr.splitlines()), simulated.stderr) == (1, "")
        assert "workers      4\n" in usual.stdout
        assert "workers      4 simulated\n" in simulated.stdout
        fingerprint = notice.split("[")[1].split("]")[0]
        found = invoke.answer("policy", verb, fingerprint)
        assert found["simulated_cluster"] == SIMULATED_CLUSTER
        line = error_line(invoke("policy", "show", fingerprint, "--workers", "8"))
        assert f"there is one for {WORDS}" in line


@pytest.mark.usefixtures("both")
def test_a_simulated_one_stays_one_in_another_database(invoke: Invoke, tmp_path: Path) -> None:
    file, other = tmp_path / "policy.json", elsewhere(tmp_path)
    export = ("policy", "export", "generated", "-o", str(file), "--cluster", "simulated")
    assert invoke.succeeds(*export).stdout == f"version 1 for generated written to {file}\n"
    (text,) = invoke.succeeds("policy", "import", str(file), "--storage", other).stdout.splitlines()
    assert text == f"{file}: added as version 1 of generated ({WORDS}); it is current"
    (imported,) = invoke.answer("policy", "import", str(file), "--storage", other)
    assert imported["simulated_cluster"] == SIMULATED_CLUSTER


SEARCH = ("run", "job.py:tiny", "--trainer", "simulated", "--workers", "8", "--halvings", "2")


def done(program: str, *words: str, folder: Path) -> str:
    found = run(program, *words, folder=folder)
    assert found.returncode == 0, found.stderr
    return found.stdout


def as_json(folder: Path) -> Any:
    """The search's result without what differs from call to call."""
    result = json.loads(done("syncswitch-search", *SEARCH, "--json", folder=folder))
    for passing in ("created_at", "software"):
        result["policy"].pop(passing)
    result["search"].pop("wall_seconds", None)  # only a search that trained has it
    return result


@pytest.mark.slow
def test_a_search_is_the_same_wherever_it_is_made_and_its_policy_trains(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "job.py").write_text(TINY_WORKLOAD)
    said = done("syncswitch-search", *SEARCH, folder=here)
    found = as_json(here)
    assert found == as_json(there)
    assert found["policy"]["training_seconds"] > 0
    program, *words = shlex.split(said.splitlines()[-1])
    report = json.loads(done(program, *words, "--json", folder=here))
    assert (report["policy"]["workload"], report["workers"]) == ("tiny", 8)
    sweep = ("sweep", "job.py:tiny", "--policy", "tiny", "--runs", "1", "--json")
    tried = json.loads(done("syncswitch-search", *sweep, folder=here))
    assert {row["workers"] for row in tried} == {8}
