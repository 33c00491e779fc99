from __future__ import annotations

from dataclasses import replace

import pytest

from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialRecord
from syncswitch.storage.records.use import PolicyUse, whole_use
from syncswitch.storage.trials.store import TrialStore
from tests.storage.conftest import POLICY, RECORD


@pytest.fixture
def used_policy(database: Database, store: TrialStore) -> TimingPolicy:
    """A policy in the database."""
    return PolicyRegistry(database).publish(POLICY)


def use_of(policy: TimingPolicy, number: int = 0, **measured: object) -> PolicyUse:
    """A whole run with a policy, of its own seed."""
    record: TrialRecord = replace(RECORD, stopped_early=False, inherited_seconds=0.0)
    record = replace(record, **measured)  # type: ignore[arg-type]
    spec = replace(record.spec, switch_percent=policy.switch_percent, seed=number)
    record = replace(record, spec=spec)
    use = whole_use(policy, f"use-{number}", record)
    assert use is not None
    return use
