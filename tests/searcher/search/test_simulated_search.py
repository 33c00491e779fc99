"""Searches on simulated clusters, with real gradients, as a user starts them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.program import TINY_WORKLOAD
from tests.warm_program import run

SEARCH = ("run", "job.py:tiny", "--trainer", "simulated", "--workers", "8", "--settings", "2")


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
