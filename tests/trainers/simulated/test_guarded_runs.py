from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.workload import Workload
from tests.trainers.guard_contract import GuardContract
from tests.trainers.jobs import BRIEF
from tests.trainers.simulated.clusters import EVEN, spec_of

LONGER = replace(BRIEF, total_worker_steps=483)


class TestGuardedRuns(GuardContract):
    is_repeatable = True

    def spec_of(
        self, workload: Workload, workers: int, switch_percent: float, **fields: Any
    ) -> TrialSpec:
        return spec_of(workload, workers, switch_percent, **fields)


def test_after_an_alarm_no_straggler_makes_it_leave_the_first_protocol(
    make_trainer: Callable[..., Any],
) -> None:
    """As after a switch: online policies act before it alone."""
    slow = "straggler:worker={},at={}%,for=60s,slowdown=4"
    conditions = RunConditions(online="greedy", injections=(slow.format(1, 5), slow.format(2, 60)))
    band = Band(2.0, 0.01, 3, (BandPoint(1, 2.0, 0.0), BandPoint(483, 2.0, 0.0)))
    spec = spec_of(LONGER, 4, 30.0, profile=EVEN, band=band, conditions=conditions)
    record = make_trainer(LONGER, 4, EVEN).train(spec)
    assert [phase.protocol for phase in record.phases] == ["bsp", "asp", "bsp"]
    kinds = [event.kind for event in record.events]
    after = kinds[kinds.index("alarmed") :]
    assert "detected" in after
    assert "switched" not in after
    seconds = sum(phase.seconds for phase in record.phases)
    assert record.guard is not None
    assert record.training_seconds == pytest.approx(seconds + record.guard.lost_seconds)
