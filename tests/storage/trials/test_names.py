from __future__ import annotations

import pytest

from syncswitch.storage.errors import DatabaseError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.trials.names import policy_choices, study_names, workload_names
from syncswitch.storage.trials.store import TrialStore
from tests.storage.conftest import IDENTITY, POLICY, SEARCH


def test_what_there_is_to_be_named(store: TrialStore, url: str) -> None:
    store.register(IDENTITY, "job.py:work", SEARCH)
    assert workload_names(url) == ["digits"]
    assert study_names(url) == ["digits-1"]
    assert policy_choices(url, "digits") == ([], [])


def test_policies_by_workload_and_all(store: TrialStore, url: str, database: object) -> None:
    registry = PolicyRegistry(database)  # type: ignore[arg-type]
    published = registry.publish(POLICY)
    registry.set_alias(published.fingerprint, "pinned", 1)
    for workload in ("digits", published.fingerprint[:8], None):
        assert policy_choices(url, workload) == (["current", "pinned"], [1])
    assert policy_choices(url, "other") == ([], [])


def test_a_database_that_is_not_there_is_not_made(tmp_path: object) -> None:
    with pytest.raises(DatabaseError, match="no database"):
        workload_names(f"sqlite:///{tmp_path}/none.db")
