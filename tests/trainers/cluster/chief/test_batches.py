from __future__ import annotations

from typing import Any

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.workload import Workload
from tests.trainers.batch_contract import BatchContract
from tests.trainers.jobs import spec_of


class TestBatchAfterTheSwitch(BatchContract):
    """Threads of this process."""

    def spec_of(
        self, workload: Workload, workers: int, switch_percent: float, **fields: Any
    ) -> TrialSpec:
        return spec_of(workload, workers, switch_percent, **fields)
