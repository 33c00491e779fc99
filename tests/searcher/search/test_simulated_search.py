"""Searches on simulated clusters, with real gradients, as a user starts them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from command_line import error_line

from syncswitch.cli.search.main import main
from tests.program import TINY_WORKLOAD
from tests.warm_program import run

SEARCH = ("run", "job.py:tiny", "--trainer", "simulated", "--workers", "8", "--settings", "2")


def start_folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    (path / "job.py").write_text(TINY_WORKLOAD)
    return path


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a search was made, and what it printed."""
    folder = start_folder(tmp_path_factory.mktemp("here"))
    done = run("syncswitch-search", *SEARCH, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def as_json(folder: Path) -> Any:
    """Returns the search's result without what differs from call to call."""
    done = run("syncswitch-search", *SEARCH, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for passing in ("created_at", "software"):
        result["policy"].pop(passing)
    result["search"].pop("wall_seconds", None)  # only a search that trained has it
    return result


@pytest.mark.slow
def test_a_search_is_the_same_bit_by_bit_wherever_it_is_made(
    searched: tuple[Path, str], tmp_path: Path
) -> None:
    here, there = as_json(searched[0]), as_json(start_folder(tmp_path / "there"))
    assert here == there
    assert here["policy"]["training_seconds"] > 0


@pytest.mark.slow
def test_what_is_said_at_the_end_trains_with_the_policy(searched: tuple[Path, str]) -> None:
    folder, said = searched
    program, *arguments = shlex.split(said.splitlines()[-1])
    assert (program, arguments[0]) == ("syncswitch-run", "job.py:tiny")
    trained = run(program, *arguments, "--json", folder=folder)
    assert trained.returncode == 0, trained.stderr
    report = json.loads(trained.stdout)
    assert (report["policy"]["workload"], report["workers"]) == ("tiny", 8)


@pytest.mark.slow
def test_its_policy_can_be_tried_on_the_real_job(searched: tuple[Path, str]) -> None:
    sweep = ("sweep", "job.py:tiny", "--policy", "tiny", "--runs", "1", "--json")
    tried = run("syncswitch-search", *sweep, folder=searched[0])
    assert tried.returncode == 0, tried.stderr
    assert {row["workers"] for row in json.loads(tried.stdout)} == {8}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workers", "6", "--protocols", "bsp,ds-sync:4"), "give one of 1, 2, 3, 6"),
        (("--protocols", "ssp:-1,asp"), "LEAD must be a whole number from 0"),
        (("--protocols", "bsp,bsp"), "two different protocols"),
        (("--profile", "negative.json"), "negative.json: compute_seconds is -1: "),
        (("--profile", "late.json"), "late.json: straggler.worker is 9, and the 8 workers"),
        (("--profile", "huge.json"), "huge.json: compute_seconds is 1e+308: "),
        (("--workers", "200"), "160 worker-steps, fewer than two rounds of 200 workers"),
    ],
)
def test_what_a_user_gets_wrong_is_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(start_folder(tmp_path))
    Path("negative.json").write_text('{"compute_seconds": -1}')
    Path("huge.json").write_text('{"compute_seconds": 1e308}')
    straggler = {"worker": 9, "start_seconds": 0, "duration_seconds": 1}
    Path("late.json").write_text(json.dumps({"compute_seconds": 1, "stragglers": [straggler]}))
    done = CliRunner().invoke(main, [*SEARCH, *arguments], prog_name="syncswitch-search")
    assert done.exit_code == 2
    assert message in error_line(done)
    assert not Path("syncswitch.db").exists()
