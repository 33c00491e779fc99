"""A database with runs of every kind, made by the ways that users have."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from sqlalchemy import insert, select

sys.path.insert(0, str(Path(__file__).parents[1] / "searcher"))

from generated_trainer import GeneratedTrainer, identity

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import Search
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.importing import import_runs as import_table
from syncswitch.storage.importing import read_table
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.job import RunConditions, SearchInfo
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.policy import whole_use
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.storage.tables.base import METADATA
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import CANCELLED, Fork, Owner
from syncswitch.storage.uses.store import record_use
from syncswitch.trainers.trainer import Observer
from tests.records import changed
from tests.run_tables import lost, rows, write_table
from tests.storage.conftest import IDENTITY, RECORD, SEARCH

OWNER = Owner("host-1", 4321, 1_700_000_000.25)
SIMULATED_CLUSTER = "5" * 64
CONDITIONS = RunConditions(
    "elastic", "restart", ("straggler:worker=1,at=10%,for=5s,delay=30ms", "kill:ps,at=60%")
)
REGRET = Metric("regret", "min", "EUR", None, None)
"""What the disturbed search is decided by."""

EVENTS = (
    RunEvent("detected", 400, 6.25, "worker 1: 2.1 worker-steps/s, median 9.8", worker=1),
    RunEvent("removed", 400, 6.25, "elastic: 3 of 4 workers go on", worker=1, seconds=0.125),
    RunEvent("rebuilt", 1800, 40.5, "server killed; from the checkpoint of worker-step 1500"),
)


def fill_all(database: Database, folder: Path) -> None:
    """Searches, finished and open; forks; runs of every kind and end, from here and elsewhere."""
    fill(database.url)
    store = TrialStore(database)
    store.register(IDENTITY, "digits", SEARCH)
    registry = PolicyRegistry(database)
    registry.set_alias(registry.policies()[0].job.fingerprint, "tried", 2)
    curve = (
        Evaluation(250, 0.75, 0.5, math.inf),
        Evaluation(500, 1.5, 0.8, math.nan),
        Evaluation(1000, 2.5, 0.9, 0.3),
    )
    base = replace(
        RECORD,
        spec=replace(RECORD.spec, switch_percent=100.0),
        evaluations=curve,
        phases=(replace(RECORD.phases[0], end_worker_step=1000, seconds=6.0),),
        training_seconds=6.0,
        inherited_seconds=0.0,
        checkpoints={50.0: folder / "50.npz"},
    )
    complete(store, SEARCH.study, 0, base)
    complete(store, SEARCH.study, 1, RECORD, fork=Fork(0, 50.0))
    diverged = replace(RECORD, diverged=True, converged=False, evaluations=(), phases=())
    complete(store, SEARCH.study, 2, later(diverged, 60))
    store.set_target(SEARCH.study, 0.9)
    store.begin(SEARCH.study, 3, RECORD.spec, OWNER)
    store.fail(SEARCH.study, 3, 'lost: "the server",\nas it says')
    store.begin(SEARCH.study, 4, RECORD.spec, OWNER)
    store.heartbeat(SEARCH.study, 4, 250)
    import_runs(database, folder)
    add_simulated(database.url)
    add_disturbed(database.url)
    add_ahead(database.url)
    add_uses(database)


def complete(
    store: TrialStore, study: str, number: int, record: TrialRecord, fork: Fork | None = None
) -> None:
    store.begin(study, number, record.spec, OWNER, fork=fork)
    plateau = None if record.diverged else record.converged_accuracy
    store.complete(study, number, record, plateau)


def later(record: TrialRecord, seconds: float) -> TrialRecord:
    """The same run at another time."""
    delay = timedelta(seconds=seconds)
    return replace(record, started_at=record.started_at + delay, ended_at=record.ended_at + delay)


def import_runs(database: Database, folder: Path) -> None:
    """Runs that count for another switch point than their own, or for none; one diverged."""
    table = write_table(
        folder / "runs.csv",
        rows("recorded", "b50-1", candidate_percent=37.5),
        rows("recorded", "b50-2", candidate_percent="", replicate=2),
        lost("recorded", "b0", 0, candidate_percent=0),
    )
    assert import_table(database, read_table(table)).imported_runs == 3


def copy_rows(source: Database, target: Database) -> None:
    """Makes the rows of all our tables the same."""
    for table in METADATA.sorted_tables:
        columns = [column for column in table.columns if column.computed is None]
        query = select(*columns).order_by(*table.primary_key.columns)
        with source.transaction(read_only=True) as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        if rows:
            with target.transaction() as connection:
                connection.execute(insert(table), rows)


def fill(url: str) -> None:
    """A finished search and one under way."""
    with open_database(url, create=True) as database:
        workload = identity()
        trainer = GeneratedTrainer(failures=1)
        Search(database, workload, SearchPlan(PaperStrategy(3, 2)), lambda: trainer).run()
        Search(database, workload, SearchPlan(PaperStrategy(4, 1)), lambda: trainer).run()
        registry, store = PolicyRegistry(database), TrialStore(database)
        registry.set_alias(workload.fingerprint, "pinned", 1)
        larger = changed(workload, name="larger", workers=8)
        search = SearchInfo(
            "under-way", larger.fingerprint, larger.protocols, "paper", 3, 2, 0.01, 0.9, "local", 1
        )
        store.register(larger, "job.py:larger", search)
        owner = Owner("golden", 4321, 1_700_000_000.25)
        store.begin("under-way", 0, TrialSpec(larger, 100.0, 7), owner)
        store.fail("under-way", 0, "the machine went away")
        store.begin("under-way", 1, TrialSpec(larger, 100.0, 7, fork_from=Path("start.npz")), owner)
        store.heartbeat("under-way", 1, 1234)


def add_simulated(url: str) -> None:
    """The same job on a simulated cluster: a finished search."""
    with open_database(url, create=False) as database:
        workload = changed(identity(), simulated_cluster=SIMULATED_CLUSTER)
        plan = SearchPlan(PaperStrategy(2, 1), trainer="simulated")
        Search(database, workload, plan, GeneratedTrainer).run()


class DisturbedTrainer(GeneratedTrainer):
    """Says what happened to each run."""

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        return replace(super().train(spec, observer), events=EVENTS)


def add_disturbed(url: str) -> None:
    """A search under conditions of its own: a finished one."""
    with open_database(url, create=False) as database:
        workload = identity(name="disturbed", model="d" * 64)
        workload = changed(workload, **flat(REGRET))
        plan = SearchPlan(PaperStrategy(2, 1), conditions=CONDITIONS)
        Search(database, workload, plan, DisturbedTrainer).run()


def add_ahead(url: str) -> None:
    """Two runs of the search under way that began in advance; nobody needed one of them."""
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        spec = TrialSpec(changed(identity(), name="larger", workers=8), 50.0, 8, replicate=2)
        for number in (3, 4):
            store.begin("under-way", number, spec, OWNER, speculative=True)
        part = replace(GeneratedTrainer().train(spec), worker_steps=2400)
        store.cancel("under-way", 3, part, CANCELLED)


def add_uses(database: Database) -> None:
    """Runs with a policy: without a guard, with a quiet one, and one that it sent back."""
    policy = PolicyRegistry(database).get(identity().fingerprint, 1)
    reason = "three tests in a row below the first protocol's"
    failed = FailedSwitch(25.0, reason, 800, 20.0, 12.5, second_protocol="asp")
    outcomes = (None, GuardOutcome(25.0), GuardOutcome(50.0, (failed,)))
    for number, guard in enumerate(outcomes):
        spec = TrialSpec(identity(), policy.switch_percent, number)
        times = {"bsp": 0.02, "asp": 0.01} if guard else {}
        record = replace(GeneratedTrainer().train(spec), guard=guard, step_seconds=times)
        use = whole_use(policy, f"use-{number}", record)
        assert record_use(database, use)
