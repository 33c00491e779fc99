from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from tests.trainers.final import train_to_end
from tests.trainers.jobs import (
    CONSTANT,
    BatchLog,
    Gate,
    RecordingObserver,
    constant_data,
    momentum_answer,
    spec_of,
)

MakeTrainer = Callable[[Workload, int], ClusterTrainer]


class SlowBatches(Gate):
    """Holds one batch until 40 further batches have begun."""

    timed_out = False

    def __init__(self, worker_step: int) -> None:
        super().__init__(worker_step)
        self._begun = count()

    def _wait(self, worker_step: Any) -> Any:
        number = next(self._begun)
        if int(worker_step) == self._worker_step:
            self._last = number + 40
            self.entered.set()
            self.timed_out = not self.open.wait(30)
        elif self.entered.is_set() and number >= self._last:
            self.open.set()
        return worker_step


def test_a_held_worker_is_as_stale_as_the_others_were_busy_in_its_phase_alone(
    make_trainer: MakeTrainer,
) -> None:
    """Meanwhile 40 batches start; all except those under way are applied."""
    slow = SlowBatches(40)
    workload = replace(CONSTANT, data=lambda: replace(constant_data(), transform=slow.transform))
    trainer = make_trainer(workload, 4)
    record = trainer.train(spec_of(workload, 4, 60.0, protocols=("asp", "bsp")))
    assert not slow.timed_out
    stale, fresh = record.phases
    # 3 others may not have applied theirs; 4 may have been applied before the pull was read.
    assert 40 - 3 - 4 <= stale.max_staleness < 120
    assert stale.max_staleness / 120 <= stale.mean_staleness <= 4 + stale.max_staleness / 120
    assert fresh.max_staleness == 0


def batches_of(
    make_trainer: MakeTrainer, workers: int, switch_percent: float
) -> dict[int, list[int]]:
    """Returns the examples in each batch of 6 of 50 examples."""
    log = BatchLog()
    numbers = np.arange(50, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)
    labels = np.zeros((50, 1), np.float32)
    data = Data(numbers, labels, numbers, labels, transform=log.transform)
    workload = replace(
        CONSTANT, data=lambda: data, total_worker_steps=125, batch_size=6, learning_rate=1e-6
    )
    trainer = make_trainer(workload, workers)
    log.batches.clear()
    log.calls = 0
    trainer.train(spec_of(workload, workers, switch_percent, seed=4))
    assert log.calls == 125, "a batch was computed twice or not at all"
    return log.batches


def test_each_epoch_holds_each_example_once_across_workers_and_the_switch(
    make_trainer: MakeTrainer,
) -> None:
    """Neither workers nor protocols change the batches."""
    batches = batches_of(make_trainer, 4, 50.0)
    row = list(chain(*(batches[step] for step in range(125))))
    for epoch in range(15):
        assert Counter(row[50 * epoch : 50 * epoch + 50]) == Counter(range(50))
    assert batches_of(make_trainer, 1, 100.0) == batches
    assert batches_of(make_trainer, 5, 0.0) == batches


SMALL = {W: replace(CONSTANT, total_worker_steps=W) for W in (1, 3, 5)}
EAGER = replace(CONSTANT, evaluation_interval_worker_steps=1)


@pytest.mark.parametrize("W", SMALL)
@pytest.mark.parametrize("switch_percent", [0.0, 50.0, 100.0])
def test_a_job_may_be_shorter_than_a_round_or_two(
    make_trainer: MakeTrainer, tmp_path: Path, W: int, switch_percent: float
) -> None:
    trainer = make_trainer(SMALL[W], 4)
    record, state = train_to_end(trainer, spec_of(SMALL[W], 4, switch_percent), tmp_path)
    assert record.worker_steps == W
    assert record.evaluations[-1].worker_step == W
    if switch_percent == 100.0:
        rounds = [4] * (W // 4) + [W % 4] * (W % 4 > 0)
        assert state.updates == len(rounds)
        # Each round at its own number of gradients: n' * eta.
        expected, _ = momentum_answer([0.01 * members for members in rounds], 0.9)
        np.testing.assert_allclose(state.parameters, expected, rtol=1e-5)


def test_an_evaluation_after_each_update_has_a_loss_and_a_time(make_trainer: MakeTrainer) -> None:
    """The tightest schedule: an evaluation is due with each push of each worker."""
    record = make_trainer(EAGER, 4).train(spec_of(EAGER, 4, 50.0))
    steps = [evaluation.worker_step for evaluation in record.evaluations]
    assert steps == [*range(4, 101, 4), *range(101, 201)]
    seconds = [evaluation.elapsed_seconds for evaluation in record.evaluations]
    assert seconds == sorted(seconds)
    assert np.isfinite([evaluation.training_loss for evaluation in record.evaluations]).all()


def test_who_looks_on_knows_of_each_checkpoint(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """Otherwise a chief could be lost before the step from which the run goes on."""
    percents = (20.0, 50.0, 100.0)
    spec = spec_of(CONSTANT, 4, 50.0, checkpoint_percents=percents, checkpoint_directory=tmp_path)
    observer = RecordingObserver()
    make_trainer(CONSTANT, 4).train(spec, observer)
    assert {40, 100, 200} <= set(observer.progress)
