from __future__ import annotations

from pathlib import Path

import pytest

from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.file import write_policy
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import RegisteredWorkload, WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore


@pytest.fixture
def workload(identity: WorkloadIdentity) -> RegisteredWorkload:
    return RegisteredWorkload(identity, "digits.py:job")


@pytest.fixture
def file(tmp_path: Path, policy: TimingPolicy, workload: RegisteredWorkload) -> Path:
    """A policy file as it was written."""
    path = tmp_path / "policy.json"
    write_policy(path, policy, workload)
    return path


@pytest.fixture
def registry(database: Database, store: TrialStore) -> PolicyRegistry:
    return PolicyRegistry(database)
