from __future__ import annotations

from pathlib import Path

import pytest

from syncswitch.storage.policies.file import write_policy
from syncswitch.storage.records.job import RegisteredWorkload, WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy


@pytest.fixture
def workload(identity: WorkloadIdentity) -> RegisteredWorkload:
    return RegisteredWorkload(identity, "digits.py:job")


@pytest.fixture
def file(tmp_path: Path, policy: TimingPolicy, workload: RegisteredWorkload) -> Path:
    """A policy file as it was written."""
    path = tmp_path / "policy.json"
    write_policy(path, policy, workload)
    return path
