"""What the database says of searches under way: pure, and read from both kinds of databases."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from command_line import LEAST, Invoke, database_file
from generated_trainer import GeneratedTrainer, identity

from syncswitch.searcher import status as status_reading
from syncswitch.searcher.search.observations import observations_of
from syncswitch.searcher.search.plan import SearchPlan, study_name
from syncswitch.searcher.search.search import Search, SearchStudy
from syncswitch.searcher.simulation.rest import RestOfSearch
from syncswitch.searcher.status import StatusReader, search_status
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import DatabaseError
from syncswitch.storage.records.trial import Evaluation, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import CANCELLED, Owner, SearchInfo, StoredTrial

JOB = identity()
RULE = AdaptiveStrategy(settings=3)
STUDY = study_name(JOB, SearchPlan(RULE))
SEARCH = SearchInfo(STUDY, JOB.fingerprint, "adaptive", 3, 5, 0.01, None, "local", 0)
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
        assert claim is not None
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
    assert (search.state, search.is_under_way, search.finished_runs) == ("running", True, 1)
    (run,) = search.in_flight
    assert (run.switch_percent, run.worker_steps, run.accuracy) == (12.5, 1500, 0.75)
    assert (run.host, run.process_id, run.state) == (socket.gethostname(), os.getpid(), "running")
    assert run.remaining_seconds is not None
    answers = [switch_point.answer_probability for switch_point in search.switch_points]
    assert sum(filter(None, answers)) == pytest.approx(1.0)
    assert [one.switch_percent for one in search.switch_points] == [100, 75, 50, 25, 12.5]
    assert [one.in_flight_runs for one in search.switch_points] == [0, 0, 0, 0, 1]
    assert search.cost is not None
    assert search.cost == pytest.approx(1.0 + run.cost)
    assert search.rest is not None
    assert 0 <= search.rest.low_cost <= search.rest.high_cost
    assert search.last_failure is None

    # What the study does not run any more has no accuracy under way.
    store.fail(STUDY, 1, "the server was lost")
    study.fail(1)
    (search,) = StatusReader(any_url).read()
    assert (search.state, search.is_under_way, search.in_flight) == ("stopped", True, ())
    assert search.last_failure == "12.5 %, run 1: the server was lost"
    assert search.failed_runs == 1


def rows_of(url: str) -> dict[int, StoredTrial]:
    with open_database(url, create=False) as database:
        return TrialStore(database).numbered(STUDY)


def finished(rows: dict[int, StoredTrial]) -> list[Observation]:
    return observations_of(rows.values())


@pytest.mark.usefixtures("our_tables")
class TestPure:
    @pytest.fixture
    def rows(self, url: str) -> dict[int, StoredTrial]:
        begin(url)
        return rows_of(url)

    def test_time_that_remains_follows_the_pace_of_the_run(
        self, rows: dict[int, StoredTrial]
    ) -> None:
        began = NOW - timedelta(seconds=100)
        # BSP for 25 %, then ASP, which takes 0.3 times as long where nobody has measured it.
        run = replace(
            rows[1],
            switch_percent=25.0,
            worker_steps=750,
            started_at=began,
            heartbeat_at=NOW,
        )
        status = search_status(SEARCH, JOB, {1: run}, [], {1: "running"}, NOW)
        (found,) = status.in_flight
        assert found.cost == pytest.approx(0.25)
        assert found.remaining_seconds == pytest.approx(100 * 0.75 * 0.3 / 0.25)
        later = search_status(
            SEARCH, JOB, {1: run}, [], {1: "running"}, NOW + timedelta(seconds=30)
        ).in_flight[0]
        assert later.remaining_seconds == pytest.approx(found.remaining_seconds - 30)

    def test_a_run_whose_process_is_dead_is_no_run_under_way(
        self, rows: dict[int, StoredTrial]
    ) -> None:
        states, now = {0: "complete", 1: "stale"}, datetime.now(timezone.utc)
        status = search_status(SEARCH, JOB, rows, finished(rows), states, now)
        assert (status.state, status.failed_runs) == ("stopped", 1)
        assert status.last_failure == "12.5 %, run 1: its process is gone"
        assert [run.remaining_seconds for run in status.in_flight] == [None]
        assert [switch_point.in_flight_runs for switch_point in status.switch_points] == [0] * 5
        assert status.is_under_way
        much_later = now + timedelta(minutes=5)
        assert not search_status(SEARCH, JOB, rows, finished(rows), states, much_later).is_under_way

    def test_dead_time_is_no_pace_and_time_under_way_counts(
        self, rows: dict[int, StoredTrial]
    ) -> None:
        def span(number: int, state: str, start: int, end: int | None, beat: int) -> StoredTrial:
            start_at, beat_at = NOW + timedelta(seconds=start), NOW + timedelta(seconds=beat)
            ended_at = None if end is None else NOW + timedelta(seconds=end)
            return replace(
                rows[number],
                state=state,
                failure="its process was gone" if state == "failed" else None,
                started_at=start_at,
                heartbeat_at=beat_at,
                ended_at=ended_at,
            )

        complete, running = span(0, "complete", 0, 30, 29), span(1, "running", 30, None, 40)
        # Found dead ten hours later.
        stale = replace(span(1, "failed", 40, 36_000, 60), trial_number=2)
        states = {0: "complete", 1: "running", 2: "failed"}
        status = search_status(
            SEARCH,
            JOB,
            {0: complete, 1: running, 2: stale},
            finished({0: complete}),
            states,
            NOW + timedelta(seconds=41),
            rest=RestOfSearch(3, 2.0, 2.0, 2.0),
        )
        assert status.wall_seconds == 60
        assert status.rest is not None
        assert status.remaining_wall_seconds == pytest.approx(30 * status.rest.cost)

    def test_a_new_search_is_starting(self) -> None:
        began = NOW - timedelta(minutes=2)
        status = search_status(SEARCH, JOB, {}, [], {}, NOW, registered_at=began)
        assert (status.state, status.is_under_way) == ("starting", True)
        later = NOW + timedelta(minutes=2)
        status = search_status(SEARCH, JOB, {}, [], {}, later, registered_at=began)
        assert (status.state, status.is_under_way) == ("stopped", False)

    def test_what_is_paid_of_the_rest_is_no_rest(self, rows: dict[int, StoredTrial]) -> None:
        states = {0: "complete", 1: "running"}
        rest = RestOfSearch(3, 2.0, 0.1, 4.0)
        status = search_status(SEARCH, JOB, rows, finished(rows), states, NOW, rest=rest)
        (run,) = status.in_flight
        assert status.rest == rest.less(run.cost)
        assert status.rest is not None
        assert status.rest.low_cost == 0

    def test_a_diverged_baseline(self, rows: dict[int, StoredTrial]) -> None:
        # One is made again with another seed.
        diverged = {
            number: replace(rows[0], trial_number=number, replicate=number, diverged=True)
            for number in range(2)
        }
        states = dict.fromkeys(diverged, "complete")
        status = search_status(SEARCH, JOB, diverged, finished(diverged), states, NOW)
        assert (status.state, status.is_finished) == ("baseline diverged", True)
        assert status.switch_points == ()


@pytest.mark.usefixtures("our_tables")
def test_a_run_that_somebody_stopped_is_no_failure(url: str, invoke: Invoke) -> None:
    with open_database(url, create=True) as database, pytest.raises(KeyboardInterrupt):
        Search(
            database,
            JOB,
            SearchPlan(RULE),
            lambda: GeneratedTrainer(error=KeyboardInterrupt()),
        ).run()
    (search,) = json.loads(invoke("status", "--json").stdout)
    assert (search["interrupted_runs"], search["failed_runs"]) == (1, 0)
    assert search["last_failure"] is None
    assert ": 0 runs, 1 interrupted" in invoke("status").stdout
    assert "interrupted" in invoke("trials").stdout


@pytest.mark.usefixtures("two_clusters")
def test_only_searches_on_a_cluster_of_this_size(invoke: Invoke) -> None:
    both = json.loads(invoke("status", "--json").stdout)
    assert [search["workers"] for search in both] == [4, 8]
    assert json.loads(invoke("status", "--workers", "8", "--json").stdout) == both[1:]
    assert (
        "no search on 3 workers of generated"
        in invoke("status", "generated", "--workers", "3").stdout
    )


@pytest.mark.usefixtures("our_tables")
def test_status_writes_nothing(url: str, invoke: Invoke) -> None:
    begin(url)

    def content() -> list[str]:
        # Not the files: whoever closes SQLite's last connection moves its log into the database.
        with contextlib.closing(sqlite3.connect(database_file(url))) as database:
            return list(database.iterdump())

    before = content()
    assert invoke("status", "--once").exit_code == 0
    assert invoke("status", "--json").exit_code == 0
    assert content() == before


@pytest.mark.usefixtures("our_tables", "early_rest")
def test_json_has_the_same_keys_for_every_search(url: str, invoke: Invoke) -> None:
    assert invoke("run", "generated", *LEAST).exit_code == 0
    begin(url)
    done, running = json.loads(invoke("status", "--json").stdout)
    assert (done["state"], running["state"]) == ("done", "running")
    assert done.keys() == running.keys()
    assert (done["rest"], done["in_flight"], done["in_flight_runs"]) == (None, [], 0)
    assert running["rest"].keys() == {field.name for field in dataclasses.fields(RestOfSearch)}
    assert running["in_flight_runs"] == 1
    assert running["in_flight"][0]["process_id"] == os.getpid()


def test_an_adaptive_search_foresees_nothing_after_one_run(url: str) -> None:
    begin(url)
    (search,) = StatusReader(url).read()
    assert search.rest is None


def test_a_database_that_vanishes_is_noticed(url: str) -> None:
    begin(url)
    reader = StatusReader(url)
    assert reader.read()
    away = database_file(url).rename(database_file(url).with_name("away.db"))
    with pytest.raises(DatabaseError, match="no database"):
        reader.read()
    away.rename(database_file(url))
    assert reader.read()


@pytest.mark.usefixtures("our_tables")
def test_a_done_search_is_read_until_its_last_run_has_ended(url: str, invoke: Invoke) -> None:
    assert invoke("run", "generated", *LEAST).exit_code == 0
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
    assert (status.in_flight, status.cancelled_runs) == ((), 1)
