from __future__ import annotations

from typing import Any

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.workload import Workload
from tests.trainers.guard_contract import GuardContract
from tests.trainers.jobs import spec_of


class TestGuardedRuns(GuardContract):
    """Threads of this process."""

    def spec_of(
        self, workload: Workload, workers: int, switch_percent: float, **fields: Any
    ) -> TrialSpec:
        return spec_of(workload, workers, switch_percent, **fields)
