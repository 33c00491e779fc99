from __future__ import annotations

from dataclasses import replace
from typing import Any

from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import RegisteredWorkload
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.workloads import (
    add_workload,
    policy_choices,
    study_names,
    workload_names,
)
from tests.records import changed
from tests.storage.conftest import IDENTITY, OTHER_IDENTITY, POLICY, SEARCH, both_databases

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


def add(database: Database, workload: RegisteredWorkload) -> None:
    with database.transaction() as connection:
        add_workload(connection, workload)


def test_a_workload_is_the_same_again_with_the_same_fingerprint(database: Database) -> None:
    registry = PolicyRegistry(database)
    for change in CHANGES:
        workload = RegisteredWorkload(changed(IDENTITY, **change).job, "job.py:it")
        add(database, workload)
        assert registry.workload(workload.job.fingerprint) == workload


def test_all_workloads_of_a_name_are_found_newest_first(database: Database) -> None:
    known = [RegisteredWorkload(one.job, "job.py:it") for one in (IDENTITY, OTHER_IDENTITY)]
    for workload in known:
        add(database, workload)
    registry = PolicyRegistry(database)
    assert registry.workloads("digits") == registry.workloads("job.py:it") == known[::-1]
    assert registry.workloads(known[0].job.fingerprint[:8]) == known[:1]
    assert registry.workloads("other") == []


def test_what_selects_a_workload(store: TrialStore) -> None:
    store.register(IDENTITY, "job.py:work", SEARCH)
    starts = [IDENTITY.fingerprint[:length] for length in (8, 9, 63, 64)]
    for selector in ("digits", "job.py:work", *starts):
        assert store.searches(workload=selector) == [SEARCH]
    too_short = IDENTITY.fingerprint[:7]
    for selector in ("", "digit", "DIGITS", "digits%", "%", "_" * 8, "%" * 8, too_short):
        assert store.searches(workload=selector) == []


def test_names_are_found_to_complete_a_command_line(store: TrialStore, database: Database) -> None:
    url, registry = database.url, PolicyRegistry(database)
    larger = replace(SEARCH, study="larger", fingerprint=OTHER_IDENTITY.fingerprint)
    store.register(OTHER_IDENTITY, "digits", larger)
    assert (workload_names(url), study_names(url)) == (["digits"], ["digits-1", "larger"])
    assert policy_choices(url, "digits") == ([], [])
    published = registry.publish(POLICY)
    registry.set_alias(published.job.fingerprint, "pinned", 1)
    for workload in ("digits", published.job.fingerprint[:8], None):
        assert policy_choices(url, workload) == (["current", "pinned"], [1])
    assert policy_choices(url, "other") == ([], [])
