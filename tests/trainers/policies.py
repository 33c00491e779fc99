"""Policies as files, for trainings that follow them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from syncswitch.storage.policies.file import write_policy
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.job import RegisteredWorkload, ScheduledJob
from tests.records import changed
from tests.storage.conftest import IDENTITY, POLICY


def level_band(accuracy: float, steps: Iterable[int]) -> Band:
    """The band of a first protocol that has this accuracy from the first of these steps on."""
    return Band(accuracy, 0.01, 3, tuple(BandPoint(step, accuracy, 0.0) for step in steps))


def policy_file(path: Path, identity: ScheduledJob = IDENTITY, **changes: Any) -> Path:
    """The file of a policy of this job."""
    of_job = {**flat(identity.job.key), **flat(identity.protocols)}
    policy = changed(POLICY, **{**of_job, **changes})
    write_policy(path, policy, RegisteredWorkload(identity.job, "digits"))
    return path
