"""A database with runs of every kind, made by the ways that users have."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from sqlalchemy import insert, select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.importing.manifest import read_manifest
from syncswitch.storage.importing.run_import import import_manifest
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import Evaluation, TrialRecord
from syncswitch.storage.tables.trials import Base
from syncswitch.storage.trials.store import Fork, Owner, SearchInfo, TrialStore
from tests.recordings import COLUMNS, write_manifest, write_run
from tests.storage.golden.make import add_ahead, add_disturbed, add_simulated, fill

OWNER = Owner("host-1", 4321, 1_700_000_000.25)


def fill_all(
    database: Database,
    identity: WorkloadIdentity,
    search: SearchInfo,
    record: TrialRecord,
    folder: Path,
) -> None:
    """Searches, finished and open; forks; runs of every kind and end, from here and elsewhere."""
    fill(database.url)
    store = TrialStore(database)
    store.register(identity, "digits", search)
    registry = PolicyRegistry(database)
    registry.set_alias(registry.policies()[0].fingerprint, "tried", 2)
    curve = (
        Evaluation(250, 0.75, 0.5, math.inf),
        Evaluation(500, 1.5, 0.8, math.nan),
        Evaluation(1000, 2.5, 0.9, 0.3),
    )
    base = replace(
        record,
        spec=replace(record.spec, switch_percent=100.0),
        evaluations=curve,
        phases=(replace(record.phases[0], end_worker_step=1000, seconds=6.0),),
        training_seconds=6.0,
        inherited_seconds=0.0,
        checkpoints={50.0: folder / "50.npz"},
    )
    complete(store, search.study, 0, base)
    complete(store, search.study, 1, record, fork=Fork(0, 50.0))
    diverged = replace(record, diverged=True, converged=False, evaluations=(), phases=())
    complete(store, search.study, 2, later(diverged, 60))
    store.set_target(search.study, 0.9)
    store.begin(search.study, 3, record.spec, OWNER)
    store.fail(search.study, 3, 'lost: "the server",\nas it says')
    store.begin(search.study, 4, record.spec, OWNER)
    store.beat(search.study, 4, 250)
    import_runs(database, folder)
    add_simulated(database.url)
    add_disturbed(database.url)
    add_ahead(database.url)


def complete(
    store: TrialStore, study: str, number: int, record: TrialRecord, fork: Fork | None = None
) -> None:
    store.begin(study, number, record.spec, OWNER, fork=fork)
    store.complete(study, number, record)


def later(record: TrialRecord, seconds: float) -> TrialRecord:
    """The same run at another time."""
    delay = timedelta(seconds=seconds)
    return replace(record, started_at=record.started_at + delay, ended_at=record.ended_at + delay)


def import_runs(database: Database, folder: Path) -> None:
    """Runs that count for another switch point than their own, or for none; one diverged."""
    for name in ("b50-1", "b50-2"):
        write_run(folder / name)
    rows = [
        ("recorded", "b50-1", "bsp", "asp", 50, 1, 8, 8000, 37.5, "no"),
        ("recorded", "b50-2", "bsp", "asp", 50, 2, 8, 8000, "", "no"),
        ("recorded", "", "bsp", "asp", 0, 1, 8, 8000, 0, "yes"),
    ]
    columns = (*COLUMNS, "stands_for_percent", "diverged")
    manifest = read_manifest(write_manifest(folder / "manifest.csv", rows, columns))
    report = import_manifest(database, manifest, folder)
    assert (report.imported_runs, report.faults) == (3, [])


def copy_rows(source: Database, target: Database) -> None:
    """Makes the rows of all our tables the same."""
    for table in Base.metadata.sorted_tables:
        columns = [column for column in table.columns if column.computed is None]
        query = select(*columns).order_by(*table.primary_key.columns)
        with source.session(read_only=True) as session:
            rows = [dict(row) for row in session.execute(query).mappings()]
        if rows:
            with target.session() as session:
                session.execute(insert(table), rows)
