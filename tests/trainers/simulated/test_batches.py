from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.simulated.profile import ClusterProfile
from tests.trainers.batch_contract import COUNTING, BatchContract
from tests.trainers.simulated.clusters import spec_of


class TestBatchAfterTheSwitch(BatchContract):
    def spec_of(
        self, workload: Workload, workers: int, switch_percent: float, **fields: Any
    ) -> TrialSpec:
        return spec_of(workload, workers, switch_percent, **fields)


def test_a_gradient_takes_the_time_of_its_batches_and_of_one_exchange(
    make_trainer: Callable[..., Any],
) -> None:
    """5 rounds, then 15 gradients of 4 worker-steps on 4 workers."""
    profile = ClusterProfile(compute_seconds=1.0, latency_seconds=0.1, switch_seconds=0.0)
    spec = spec_of(COUNTING, 4, 25.0, profile=profile)
    first, second = make_trainer(COUNTING, 4, profile).train(spec).phases
    assert first.seconds == pytest.approx(5 * 1.3)
    assert second.seconds == pytest.approx(4 * (4 * 1.0 + 0.3))
    assert (second.max_staleness, second.protocol) == (3, "asp")
