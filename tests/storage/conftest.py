from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.job import SearchInfo
from syncswitch.storage.records.policy import Evidence, Measured, PolicyUse, TimingPolicy, whole_use
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from tests.conftest import make_database
from tests.identities import GENERATED
from tests.records import changed

STARTED_AT = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)

IDENTITY = changed(
    GENERATED,
    name="digits",
    model="a model",
    data_set="digits",
    loss="crossentropy",
    optimizer='{"name":"sgd"}',
    total_worker_steps=1000,
    learning_rate_boundaries=((500, 0.1),),
)

OTHER_IDENTITY = changed(IDENTITY, workers=8)
"""The same workload on a larger cluster."""

SEARCH = SearchInfo(
    study="digits-1",
    fingerprint=IDENTITY.fingerprint,
    protocols=IDENTITY.protocols,
    strategy="adaptive",
    halvings=5,
    runs=3,
    threshold=0.01,
    target_accuracy=None,
    trainer="simulated",
    base_seed=7,
)

RECORD = TrialRecord(
    spec=TrialSpec(identity=IDENTITY, switch_percent=50.0, seed=11, replicate=2),
    worker_steps=1000,
    evaluations=(Evaluation(500, 1.5, 0.8, 0.7), Evaluation(1000, 2.5, 0.9, 0.3)),
    phases=(PhaseRecord("bsp", 0, 500, 2.0, 0.0, 0), PhaseRecord("asp", 500, 1000, 1.0, 2.5, 7)),
    converged_accuracy=0.89,
    converged=True,
    diverged=False,
    stopped_early=True,
    training_seconds=3.0,
    inherited_seconds=1.0,
    switch_overhead_seconds=0.25,
    started_at=STARTED_AT,
    ended_at=STARTED_AT + timedelta(seconds=9),
    host="chief",
    software={"tensorflow": "2.16.1"},
)

POLICY = TimingPolicy(
    job=IDENTITY.job.key,
    protocols=IDENTITY.protocols,
    version=1,
    switch_percent=12.5,
    target_accuracy=0.9,
    allowed=AllowedLoss(0.01),
    measured=Measured(0.895, 3.0, 6.0),
    strategy="adaptive",
    study="digits-1",
    evidence=(
        Evidence("digits-1", 1, 12.5, 0, 0.895, False, 3.0),
        Evidence("digits-1", 0, 100.0, 0, 0.9, False, 6.0),
    ),
    created_at=STARTED_AT.isoformat(),
    software={"tensorflow": "2.16.1"},
)


both_databases = pytest.mark.usefixtures("any_url")
"""For tests of SQL that the two kinds may take differently, and of writers side by side."""


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """A SQLite file; in tests that are marked `both_databases`, also a database on the server."""
    is_any = "any_url" in request.fixturenames
    url: str = request.getfixturevalue("any_url" if is_any else "sqlite_url")
    return url


@pytest.fixture
def other_url(url: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """A second database of the same kind, always empty at first."""
    if url.startswith("sqlite"):
        return f"sqlite:///{folder}/other.db"
    other: str = request.getfixturevalue("new_postgresql")()
    return other


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with open_database(url, create=True) as opened:
        yield opened


@pytest.fixture
def store(database: Database) -> TrialStore:
    """A trial store in which the search is registered."""
    store = TrialStore(database)
    store.register(IDENTITY, "digits", SEARCH)
    return store


@pytest.fixture(scope="session")
def filled_url(once: Callable[[str, Callable[[Path], None]], Path]) -> str:
    """A database with runs of every kind (see `filled`); only to be read."""
    from tests.storage.filled import fill_all

    def fill(folder: Path) -> None:
        with open_database(f"sqlite:///{folder}/filled.db", create=True) as database:
            fill_all(database, folder)

    return f"sqlite:///{once('filled', fill)}/filled.db"


@pytest.fixture(scope="session")
def filled_server_url(administrator: Engine, postgresql_template: str, filled_url: str) -> str:
    """The same on the server."""
    from tests.storage.filled import copy_rows

    url = make_database(administrator, "filled", postgresql_template)
    with (
        open_database(filled_url, create=False) as source,
        open_database(url, create=False) as target,
    ):
        copy_rows(source, target)
    return url


@pytest.fixture
def filled(filled_url: str) -> Iterator[Database]:
    """The same, open."""
    with open_database(filled_url, create=False) as opened:
        yield opened


@pytest.fixture(params=["filled_url", "filled_server_url"])
def any_filled(request: pytest.FixtureRequest) -> Iterator[Database]:
    """The same of each kind."""
    with open_database(request.getfixturevalue(request.param), create=False) as opened:
        yield opened


Work = Callable[[int], Any]
AtOnce = Callable[[Work, int], list[Any]]


@pytest.fixture
def at_once() -> AtOnce:
    """Runs `work(0)`, `work(1)`, ... at the same moment, each in a process of its own."""
    context = multiprocessing.get_context("fork")

    def run(work: Work, processes: int) -> list[Any]:
        barrier = context.Barrier(processes)
        answers: Any = context.SimpleQueue()

        def child(number: int) -> None:
            barrier.wait()
            try:
                answers.put((number, work(number), None))
            except BaseException:
                answers.put((number, None, traceback.format_exc()))

        children = [context.Process(target=child, args=(number,)) for number in range(processes)]
        for process in children:
            process.start()
        found = sorted((answers.get() for _ in children), key=lambda answer: int(answer[0]))
        for process in children:
            process.join()
        failures = [failure for _, _, failure in found if failure]
        assert not failures, failures[0]
        return [answer for _, answer, _ in found]

    return run


def sent_back(*percents: float, held_percent: float = 100.0) -> GuardOutcome:
    """What a guard did that found that these switches fail."""
    failed = (
        FailedSwitch(percent, "it fails", 700 + number, 2.5 + number, 1.25 + number, 0.5)
        for number, percent in enumerate(percents)
    )
    return GuardOutcome(held_percent, tuple(failed))


@pytest.fixture
def used_policy(database: Database, store: TrialStore) -> TimingPolicy:
    """A policy in the database."""
    return PolicyRegistry(database).publish(POLICY)


def use_of(policy: TimingPolicy, number: int = 0, **measured: Any) -> PolicyUse:
    """A whole run with a policy, of its own seed."""
    record = replace(RECORD, stopped_early=False, inherited_seconds=0.0)
    record = replace(record, **measured)
    spec = replace(record.spec, switch_percent=policy.switch_percent, seed=number)
    return whole_use(policy, f"use-{number}", replace(record, spec=spec))


@pytest.fixture
def registry(database: Database, store: TrialStore) -> PolicyRegistry:
    """A policy registry beside that store."""
    return PolicyRegistry(database)
