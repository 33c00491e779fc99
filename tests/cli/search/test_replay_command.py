"""`syncswitch-search run --trainer replay`: a real search whose runs were recorded before."""

from __future__ import annotations

import os
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from command_line import Invoke, database_file, elsewhere, error_line
from searches import search, trials_of

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.trials.store import TrialStore
from tests.identities import GENERATED
from tests.records import changed

ARGUMENTS = ("run", "generated", "--trainer", "replay", "--strategy", "paper", "--halvings", "2")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of a database with 3 runs at each of 100, 50 and 25 %; only read."""
    return record(f"sqlite:///{tmp_path_factory.mktemp('recorded')}/runs.db", GENERATED)


def record(url: str, identity: ScheduledJob, runs: int = 3) -> str:
    """Adds the runs of a search to a database."""
    plan = SearchPlan(PaperStrategy(halvings=2, runs=runs))
    search(url, None, plan, job=identity, reference="jobs.py:it")
    return url


@pytest.fixture
def replay(url: str, recordings: str) -> Invoke:
    return Invoke(*ARGUMENTS, "--recordings", recordings, "--storage", url)


def measured(url: str) -> list[tuple[Any, ...]]:
    figures = ("result.converged_accuracy", "times.training_seconds", "phases")
    return list(map(attrgetter("candidate_percent", "replicate", *figures), trials_of(url)))


def test_with_the_recorded_seeds_the_same_search_comes_out(
    replay: Invoke, url: str, recordings: str
) -> None:
    assert replay.answer("--runs", "3")["policy"]["switch_percent"] == 25.0
    assert measured(url) == measured(recordings)
    with open_database(url, create=False) as database:
        (info,) = TrialStore(database).searches(workload="jobs.py:it")
        assert info.trainer == "replay"
        assert info.fingerprint == GENERATED.fingerprint


def test_other_seeds_draw_and_their_draws_can_be_made_again(
    replay: Invoke, url: str, recordings: str, folder: Path
) -> None:
    replay.succeeds("--runs", "3", "--seed", "5")
    # All 3 recorded runs of each switch point, in another order.
    here, there = measured(url), measured(recordings)
    assert {row[:3] for row in here} != {row[:3] for row in there}
    assert {row[::2] for row in here} == {row[::2] for row in there}
    again = f"sqlite:///{folder}/again.db"
    replay.succeeds("--runs", "3", "--seed", "5", "--storage", again)
    assert measured(again) == measured(url)


def test_a_workload_that_can_be_trained_is_to_be_run(
    replay: Invoke, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)

    def last_line(*arguments: str) -> str:
        return replay.succeeds("--runs", "1", *arguments).stdout.splitlines()[-1].strip()

    # Recorded from a file that is not here: there is nothing to run.
    name = GENERATED.fingerprint[:12]
    assert last_line() == f"syncswitch-search policy export {name} --storage {url}"
    Path("jobs.py").touch()
    assert last_line() == f"syncswitch-run jobs.py:it --storage {url}"


def test_the_number_of_workers_is_that_of_the_recording(replay: Invoke, folder: Path) -> None:
    """4 is the default of other trainers, and chooses only where it is said."""
    options = ["--runs", "1", "--recordings", elsewhere(folder)]

    def answered_for(*arguments: str) -> int:
        return int(replay.answer(*options, *arguments)["policy"]["workers"])

    record(elsewhere(folder), changed(GENERATED, workers=8), runs=1)
    assert answered_for() == 8
    record(elsewhere(folder), GENERATED, runs=1)
    line = error_line(replay(*options))
    assert "names 2 workloads" in line
    assert "choose with --workers, or give the fingerprint" in line
    assert answered_for("--workers", "4") == 4


def test_a_dry_run_forecasts_from_the_recordings(replay: Invoke, url: str) -> None:
    assert [answer["switch_percent"] for answer in replay.answer("--dry-run")] == [100, 50, 25]
    assert not database_file(url).exists()


def test_what_nobody_recorded_ends_the_search(replay: Invoke, url: str) -> None:
    for words in (["--workers", "16"], ["--protocols", "asp,bsp"]):
        line = error_line(replay(*words))
        assert "no complete runs of 'generated'" in line
        assert ("with asp,bsp" in line) == ("asp,bsp" in words)
    assert not database_file(url).exists()
    assert replay("--halvings", "3", "--runs", "1").stderr.splitlines()[-1] == (
        "error: no run of 'generated' at 12.5 % is recorded (recorded: 100, 50, 25);"
        " ask for one of these, or record such runs"
    )


def test_replays_never_join_the_runs_that_they_replay(
    replay: Invoke, url: str, recordings: str
) -> None:
    before = database_file(recordings).read_bytes()
    path = os.path.relpath(database_file(recordings))
    result = replay("--storage", f"sqlite:///{path}")
    assert "replayed runs would count as measured ones" in error_line(result)
    assert database_file(recordings).read_bytes() == before
    # Nor do they become recordings themselves.
    replay.succeeds("--runs", "1")
    result = replay("--recordings", url, "--storage", recordings)
    assert "no complete runs of 'generated'" in error_line(result)
