from __future__ import annotations

from pathlib import Path

import pytest

from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.file import write_policy
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import RegisteredWorkload
from syncswitch.storage.trials.store import TrialStore
from tests.storage.conftest import IDENTITY, POLICY


@pytest.fixture
def workload() -> RegisteredWorkload:
    return RegisteredWorkload(IDENTITY, "digits.py:job")


@pytest.fixture
def file(tmp_path: Path, workload: RegisteredWorkload) -> Path:
    """A policy file as it was written."""
    path = tmp_path / "policy.json"
    write_policy(path, POLICY, workload)
    return path


@pytest.fixture
def registry(database: Database, store: TrialStore) -> PolicyRegistry:
    return PolicyRegistry(database)
