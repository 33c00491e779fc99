from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import RegisteredWorkload
from syncswitch.storage.tables.trials import WORKLOADS
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.workloads import add_workload, registered_workload
from tests.storage.conftest import IDENTITY, SEARCH, both_databases

pytestmark = both_databases


CHANGES: list[dict[str, Any]] = [
    {},
    {"learning_rate": 0.1 + 0.2, "learning_rate_boundaries": ((1, 0.1), (2**53, 1.0))},
    {"learning_rate_boundaries": ()},
    {
        "model": None,
        "data_set": None,
        "batch_size": None,
        "learning_rate": None,
        "learning_rate_boundaries": None,
    },
    {"simulated_cluster": "5" * 64},
    {"simulated_cluster": "5" * 64, "model": None},
    {"optimizer": '{"name":"Ünï\\u2028"}', "total_worker_steps": 2**62},
]


def test_a_workload_is_the_same_again_with_the_same_fingerprint(database: Database) -> None:
    for change in CHANGES:
        workload = RegisteredWorkload(replace(IDENTITY, **change), "job.py:it")
        fingerprint = workload.identity.fingerprint
        with database.transaction() as connection:
            add_workload(connection, workload)
        with database.transaction(read_only=True) as connection:
            query = select(WORKLOADS).where(WORKLOADS.c.fingerprint == fingerprint)
            found = registered_workload(connection.execute(query).one())
        assert found == workload
        assert found.identity.fingerprint == fingerprint


def test_all_workloads_of_a_name_are_found_newest_first(database: Database) -> None:
    known = [
        RegisteredWorkload(replace(IDENTITY, workers=workers), "job.py:it") for workers in (4, 8)
    ]
    for workload in known:
        with database.transaction() as connection:
            add_workload(connection, workload)
    registry = PolicyRegistry(database)
    assert registry.workloads("digits") == registry.workloads("job.py:it") == known[::-1]
    assert registry.workloads(known[0].identity.fingerprint[:8]) == known[:1]
    assert registry.workloads("other") == []


pytestmark = both_databases


def test_what_selects_a_workload(store: TrialStore) -> None:
    store.register(IDENTITY, "job.py:work", SEARCH)
    starts = [IDENTITY.fingerprint[:length] for length in (8, 9, 63, 64)]
    for selector in ("digits", "job.py:work", *starts):
        assert store.searches(workload=selector) == [SEARCH]
    too_short = IDENTITY.fingerprint[:7]
    for selector in ("", "digit", "DIGITS", "digits%", "%", "_" * 8, "%" * 8, too_short):
        assert store.searches(workload=selector) == []
