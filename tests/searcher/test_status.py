"""What the database says of searches under way: pure, and read from both kinds of databases."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from command_line import LEAST, Invoke, database_file
from generated_trainer import GeneratedTrainer, identity

from syncswitch.searcher import status as status_reading
from syncswitch.searcher.forecast import RestOfSearch
from syncswitch.searcher.search.observations import observations_of
from syncswitch.searcher.search.plan import SearchPlan, study_name
from syncswitch.searcher.search.search import Search
from syncswitch.searcher.search.study import SearchStudy
from syncswitch.searcher.status import SearchStatus, StatusReader, StoredSearch
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.job import SearchInfo
from syncswitch.storage.records.trial import Evaluation, TrialSpec, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import CANCELLED, Owner, StoredTrial
from tests.failing import fails

JOB = identity()
RULE = AdaptiveStrategy(halvings=3)
STUDY = study_name(JOB, SearchPlan(RULE))
SEARCH = SearchInfo(STUDY, JOB.fingerprint, JOB.protocols, "adaptive", 3, 5, 0.01, None, "local", 0)
NOW = datetime.now(timezone.utc)


@pytest.fixture
def early_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to come is foreseen after the first run, however badly."""
    monkeypatch.setattr(status_reading, "LEAST_RUNS", 1)


def begin(url: str) -> tuple[TrialStore, SearchStudy]:
    """A search of which one run is complete and one goes on, halfway."""
    study = SearchStudy(open_database(url, create=True), STUDY, RULE)
    store = study.store
    store.register(JOB, "generated", SEARCH)
    for percent in (100.0, 12.5):
        claim = study.claim(study.read(), Owner.current(), 0, study.read)
        spec = TrialSpec(JOB, percent, claim.seed, claim.replicate)
        store.begin(STUDY, claim.number, spec, Owner.current())
        if percent == 100.0:
            record = GeneratedTrainer().train(spec)
            store.complete(STUDY, claim.number, record)
            study.note_result(claim.number, False, record.training_seconds)
            study.complete(claim.number, record.converged_accuracy)
    store.heartbeat(STUDY, 1, 1500)
    study.note_evaluation(1, Evaluation(1000, 10.0, 0.5, 1.0))
    study.note_evaluation(1, Evaluation(1500, 15.0, 0.75, 1.0))
    return store, study


@pytest.mark.usefixtures("early_rest")
def test_a_search_under_way(any_url: str) -> None:
    store, study = begin(any_url)
    (search,) = StatusReader(any_url).read()
    assert (search.state, search.is_under_way, search.runs.finished_runs) == ("running", True, 1)
    (run,) = search.in_flight
    assert (run.switch_percent, run.worker_steps, run.accuracy) == (12.5, 1500, 0.75)
    assert (run.host, run.process_id, run.state) == (socket.gethostname(), os.getpid(), "running")
    answers = [switch_point.answer_probability for switch_point in search.switch_points]
    assert sum(filter(None, answers)) == pytest.approx(1.0)
    assert [one.switch_percent for one in search.switch_points] == [100, 75, 50, 25, 12.5]
    assert [one.in_flight_runs for one in search.switch_points] == [0, 0, 0, 0, 1]
    assert search.spending.cost == pytest.approx(1.0 + run.cost)
    assert 0 <= search.spending.rest.low_cost <= search.spending.rest.high_cost
    assert search.last_failure is None

    # What the study does not run any more has no accuracy under way.
    store.fail(STUDY, 1, "the server was lost")
    study.fail(1)
    (search,) = StatusReader(any_url).read()
    assert (search.state, search.is_under_way, search.in_flight) == ("stopped", True, ())
    assert search.last_failure == "12.5 %, run 1: the server was lost"
    assert search.runs.failed_runs == 1


@pytest.fixture
def rows(url: str, our_tables: None) -> dict[int, StoredTrial]:
    """The rows of that search."""
    begin(url)
    with open_database(url, create=False) as database:
        return TrialStore(database).numbered(STUDY)


def status_of(
    rows: Mapping[int, StoredTrial], states: Mapping[int, TrialState], now: datetime, **known: Any
) -> SearchStatus:
    complete = [row for number, row in rows.items() if states[number] == "complete"]
    return StoredSearch(SEARCH, JOB, rows, observations_of(complete), states, **known).status(now)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_time_that_remains_follows_the_pace_of_the_run(rows: dict[int, StoredTrial]) -> None:
    # BSP for 25 %, then ASP, which takes 0.3 times as long where nobody has measured it.
    span = {"started_at": after(-100), "heartbeat_at": NOW}
    run = replace(rows[1], switch_percent=25.0, worker_steps=750, **span)
    now, later = (
        status_of({1: run}, {1: "running"}, after(seconds)).in_flight[0] for seconds in (0, 30)
    )
    assert now.cost == pytest.approx(0.25)
    assert now.remaining_seconds == pytest.approx(100 * 0.75 * 0.3 / 0.25)
    assert later.remaining_seconds == pytest.approx(now.remaining_seconds - 30)


def test_a_run_whose_process_is_dead_is_no_run_under_way(rows: dict[int, StoredTrial]) -> None:
    states, now = {0: "complete", 1: "stale"}, datetime.now(timezone.utc)
    status = status_of(rows, states, now)
    assert (status.state, status.runs.failed_runs) == ("stopped", 1)
    assert status.last_failure == "12.5 %, run 1: its process has exited"
    assert [run.remaining_seconds for run in status.in_flight] == [None]
    assert [switch_point.in_flight_runs for switch_point in status.switch_points] == [0] * 5
    assert status.is_under_way
    assert not status_of(rows, states, now + timedelta(minutes=5)).is_under_way


def test_dead_time_is_no_pace_and_what_is_paid_is_no_rest(rows: dict[int, StoredTrial]) -> None:
    complete = replace(rows[0], started_at=NOW, heartbeat_at=after(29), ended_at=after(30))
    running = replace(rows[1], started_at=after(30), heartbeat_at=after(40))
    # Found dead ten hours later.
    stale = replace(running, state="failed", failure="its process was gone")
    stale = replace(stale, origin=replace(running.origin, trial_number=2))
    stale = replace(stale, started_at=after(40), heartbeat_at=after(60), ended_at=after(36_000))
    states = {0: "complete", 1: "running", 2: "failed"}
    rest = RestOfSearch(3, 2.0, 0.1, 4.0)
    status = status_of({0: complete, 1: running, 2: stale}, states, after(41), rest=rest)
    assert status.spending.wall_seconds == 60
    assert status.spending.rest == rest.less(status.in_flight[0].cost)
    assert status.spending.rest.low_cost == 0
    assert status.spending.remaining_wall_seconds == pytest.approx(30 * status.spending.rest.cost)


def test_a_new_search_is_starting() -> None:
    for seconds, state in ((120, "starting"), (240, "stopped")):
        status = status_of({}, {}, after(seconds), registered_at=NOW)
        assert (status.state, status.is_under_way) == (state, state == "starting")


def test_a_baseline_that_diverged_ends_a_search(rows: dict[int, StoredTrial]) -> None:
    # One is made again with another seed.
    origin, result = rows[0].origin, replace(rows[0].result, diverged=True)
    diverged = {
        number: replace(
            rows[0], origin=replace(origin, trial_number=number), replicate=number, result=result
        )
        for number in range(2)
    }
    status = status_of(diverged, dict.fromkeys(diverged, "complete"), NOW)
    assert (status.state, status.is_finished) == ("baseline diverged", True)
    assert status.switch_points == ()


@pytest.mark.usefixtures("our_tables")
def test_a_run_that_somebody_stopped_is_no_failure(url: str, invoke: Invoke) -> None:
    trainer = GeneratedTrainer(error=KeyboardInterrupt())
    with open_database(url, create=True) as database, pytest.raises(KeyboardInterrupt):
        Search(database, JOB, SearchPlan(RULE), lambda: trainer).run()
    (search,) = invoke.answer("status")
    assert (search["interrupted_runs"], search["failed_runs"]) == (1, 0)
    assert search["last_failure"] is None
    assert ": 0 runs, 1 interrupted" in invoke("status").stdout
    assert "interrupted" in invoke("trials").stdout


@pytest.mark.usefixtures("two_clusters")
def test_only_searches_on_a_cluster_of_this_size(invoke: Invoke) -> None:
    both = invoke.answer("status")
    assert [search["workers"] for search in both] == [4, 8]
    assert invoke.answer("status", "--workers", "8") == both[1:]
    said = invoke("status", "generated", "--workers", "3").stdout
    assert "no search on 3 workers of generated" in said


@pytest.mark.usefixtures("our_tables", "early_rest")
def test_json_has_the_same_keys_for_every_search_and_nothing_is_written(
    url: str, invoke: Invoke
) -> None:
    def content() -> list[str]:
        # Not the files: whoever closes SQLite's last connection moves its log into the database.
        with contextlib.closing(sqlite3.connect(database_file(url))) as database:
            return list(database.iterdump())

    invoke.succeeds("run", "generated", *LEAST)
    begin(url)
    before = content()
    done, running = invoke.answer("status")
    assert content() == before
    assert (done["state"], running["state"]) == ("done", "running")
    assert done.keys() == running.keys()
    assert (done["rest"], done["in_flight"], done["in_flight_runs"]) == (None, [], 0)
    assert running["rest"].keys() == {field.name for field in dataclasses.fields(RestOfSearch)}
    assert running["in_flight_runs"] == 1
    assert running["in_flight"][0]["process_id"] == os.getpid()


def test_a_database_that_vanishes_is_noticed(url: str) -> None:
    begin(url)
    reader = StatusReader(url)
    (search,) = reader.read()
    assert search.spending.rest is None, "an adaptive search foresees nothing after one run"
    away = database_file(url).rename(database_file(url).with_name("away.db"))
    with fails("database-not-found"):
        reader.read()
    away.rename(database_file(url))
    assert reader.read()


@pytest.mark.usefixtures("our_tables")
def test_a_done_search_is_read_until_its_last_run_has_ended(url: str, invoke: Invoke) -> None:
    invoke.succeeds("run", "generated", *LEAST)
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        (search,) = store.searches()
        number = max(store.numbered(search.study)) + 1
        spec = TrialSpec(JOB, 12.5, 7, 9)
        store.begin(search.study, number, spec, Owner.current(), speculative=True)
        reader = StatusReader(url)
        (status,) = reader.read()
        assert (status.state, len(status.in_flight)) == ("done", 1)
        store.fail(search.study, number, CANCELLED)
    (status,) = reader.read()
    assert (status.in_flight, status.runs.cancelled_runs) == ((), 1)
