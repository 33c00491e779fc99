"""Training on a virtual clock under conditions: resumed, disturbed, with online policies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.job.schedule import checkpoint_path
from syncswitch.trainers.job.workload import Batch, Workload
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.model.state import read_checkpoint
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.simulated.trainer import SimulatedTrainer
from tests.trainers.batch_contract import COUNTING, BatchContract
from tests.trainers.final import assert_bitwise_equal, train_to_end
from tests.trainers.jobs import (
    CONSTANT,
    CONSTANT_GRADIENT,
    DENSE,
    RecordingObserver,
    momentum_answer,
    phases_answer,
)
from tests.trainers.simulated.clusters import EVEN, spec_of
from tests.trainers.simulated.test_trainer import SHORT, measured

MakeTrainer = Callable[..., SimulatedTrainer]


class Killed(BaseException):
    """Raised instead of killing the test's own process."""


def killing(worker_step: int) -> RecordingObserver:
    class Killing(RecordingObserver):
        def on_progress(self, done: int) -> None:
            if done > worker_step:
                raise Killed

    return Killing()


def known(record: TrialRecord) -> tuple[Any, ...]:
    """All but the loss since the test before, which a checkpoint between tests cuts."""
    tests = [(e.worker_step, e.elapsed_seconds, e.accuracy) for e in record.evaluations]
    return (tests, *measured(record)[1:], record.inherited_seconds, sorted(record.checkpoints))


@pytest.mark.parametrize("last", [None, 40.0, 80.0])
def test_a_run_that_was_killed_ends_bitwise_as_if_nothing_had_happened(
    make_trainer: MakeTrainer, tmp_path: Path, last: float | None
) -> None:
    """Before its first checkpoint it starts afresh; two of four are behind the switch."""
    trainer, percents = make_trainer(SHORT, 4), (20.0, 40.0, 80.0, 100.0)
    spec = spec_of(
        SHORT, 4, 50.0, checkpoint_percents=percents, checkpoint_directory=tmp_path / "whole"
    )
    whole, end = train_to_end(trainer, spec, tmp_path)
    killed = replace(spec, checkpoint_directory=tmp_path / "killed")
    reached = read_checkpoint(whole.checkpoints[last]).worker_step if last else 7
    with pytest.raises(Killed):
        trainer.train(killed, killing(reached))
    assert not checkpoint_path(killed, 100.0, ".npz").exists()
    record, found = train_to_end(trainer, replace(killed, resume=True), tmp_path)
    assert_bitwise_equal(found, end)
    assert known(record) == known(whole)
    resumed = [event for event in record.events if event.kind == "resumed"]
    assert [event.worker_step for event in resumed] == ([reached] if last else [])
    assert [event for event in record.events if event.kind != "resumed"] == list(whole.events)


def test_a_checkpoint_that_cannot_be_written_is_missed_alone(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    percents = (40.0, 100.0)
    spec = spec_of(SHORT, 4, 50.0, checkpoint_percents=percents, checkpoint_directory=blocked)
    trainer = make_trainer(SHORT, 4)
    record = trainer.train(spec)
    assert not record.checkpoints
    (unsaved,) = (event for event in record.events if event.kind == "unsaved")
    assert (unsaved.worker_step, "make room there" in unsaved.reason) == (36, True)
    whole = trainer.train(replace(spec, checkpoint_directory=tmp_path / "folder"))
    assert measured(whole) == measured(record)


class TestDisturbed:
    SLOW = "straggler:worker=3,at=5%,for=35%,slowdown=4"
    KILL = "kill:worker=1,at=20%,for=300ms"
    LATE = "kill:worker=0,at=70%,for=500ms"

    @pytest.mark.parametrize(
        ("online", "second"),
        [("none", "local-sgd:3"), ("greedy", "asp"), ("elastic", "local-sgd:3")],
    )
    def test_it_learns_and_measures_the_same_again(
        self, make_trainer: MakeTrainer, online: str, second: str
    ) -> None:
        conditions = RunConditions(online, injections=(self.SLOW, self.KILL, self.LATE))
        spec = spec_of(DENSE, 4, 50.0, protocols=("bsp", second), conditions=conditions)
        trainer = make_trainer(DENSE, 4)
        record, again = trainer.train(spec), trainer.train(spec)
        assert measured(again) == measured(record)
        assert again.events == record.events
        assert record.worker_steps == DENSE.total_worker_steps
        assert record.final_accuracy > 0.8
        kinds = [event.kind for event in record.events]
        assert (kinds.count("lost"), kinds.count("returned")) == (2, 2)
        decided = {"none": [], "greedy": ["detected"], "elastic": ["detected", "removed"]}
        assert [one for one in kinds if one in ("detected", "removed")] == decided[online]

    @pytest.mark.parametrize(("protocol", "momentum"), [("bsp", 0.9), ("local-sgd:1", 0.0)])
    def test_a_round_of_fewer_has_their_rate(
        self, end_of: Callable[..., ModelState], protocol: str, momentum: float
    ) -> None:
        """Of 50 rounds of 1 s, ten from the 11th on have 3 gradients, which takes 2 more rounds.

        Who comes back has the replicas of the others; of the last round two do not take part.
        """
        workload, pair = replace(CONSTANT, momentum=momentum), (protocol, "asp")
        kill = RunConditions(injections=("kill:worker=2,at=10500ms,for=9s",))
        found = end_of(workload, 4, profile=EVEN, protocols=pair, conditions=kill)
        sizes = [4] * 10 + [3] * 10 + [4] * 32 + [2]
        assert sum(sizes) == 200
        parameters, _ = momentum_answer([0.01 * size for size in sizes], momentum)
        assert found.parameters == pytest.approx(parameters, rel=1e-4, abs=1e-5)
        assert found.updates == len(sizes)

    @pytest.mark.parametrize(("batch", "phases"), [("same", 4), ("global", 2)])
    def test_a_detour_has_the_second_protocols_momentum_and_batch(
        self, make_trainer: MakeTrainer, tmp_path: Path, batch: Batch, phases: int
    ) -> None:
        """One of 8 workers is slow before the switch: BSP has its share in two parts.

        Of gradients that are as large as rounds there are too few to see before the end that it is
        slow no more.
        """
        workload = replace(
            CONSTANT,
            total_worker_steps=800,
            momentum_after_switch="zero",
            batch_after_switch=batch,
        )
        slow = RunConditions("greedy", injections=("straggler:worker=5,at=10%,for=30%,slowdown=3",))
        spec = spec_of(workload, 8, 60.0, profile=EVEN, conditions=slow)
        record, found = train_to_end(make_trainer(workload, 8, EVEN), spec, tmp_path)
        assert [phase.protocol for phase in record.phases] == ["bsp", "asp"] * (phases // 2)
        expected = phases_answer(workload, record)
        assert found.parameters == pytest.approx(expected, rel=1e-4)
        np.testing.assert_allclose(found.slots, CONSTANT_GRADIENT)
        sizes = {"bsp": 8, "asp": 8 if batch == "global" else 1}
        assert found.updates == sum(
            math.ceil((one.end_worker_step - one.start_worker_step) / sizes[one.protocol])
            for one in record.phases
        )


class TestBatchAfterTheSwitch(BatchContract):
    def spec_of(
        self, workload: Workload, workers: int, switch_percent: float, **fields: Any
    ) -> TrialSpec:
        return spec_of(workload, workers, switch_percent, **fields)

    def test_a_gradient_takes_the_time_of_its_batches_and_of_one_exchange(
        self, make_trainer: MakeTrainer
    ) -> None:
        """5 rounds, then 15 gradients of 4 worker-steps on 4 workers."""
        profile = ClusterProfile(compute_seconds=1.0, latency_seconds=0.1, switch_seconds=0.0)
        spec = spec_of(COUNTING, 4, 25.0, profile=profile)
        first, second = make_trainer(COUNTING, 4, profile).train(spec).phases
        assert first.seconds == pytest.approx(5 * 1.3)
        assert second.seconds == pytest.approx(4 * (4 * 1.0 + 0.3))
        assert (second.max_staleness, second.protocol) == (3, "asp")
