from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from tests.trainers.final import train_to_end
from tests.trainers.jobs import CONSTANT, BatchLog, RecordingObserver, constant_data, spec_of

MakeTrainer = Callable[[Workload, int], ClusterTrainer]


class SlowBatches:
    """Holds one batch until a number of further batches have started."""

    def __init__(self, behind: int = 0, seconds: float = 0.0) -> None:
        self.held_step: int | None = None
        self._seconds = seconds
        self._behind = behind
        self._started = 0
        self._lock = threading.Lock()
        self.timed_out = False

    def transform(self, inputs: Any, labels: Any, seed: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        passed = tf.py_function(self._wait, [seed[1]], tf.int64)
        with tf.control_dependencies([passed]):
            return tf.identity(inputs), tf.identity(labels)

    def _wait(self, worker_step: Any) -> Any:
        with self._lock:
            self._started += 1
            target = self._started + self._behind
        if int(worker_step) == self.held_step:
            deadline = time.monotonic() + 30
            while self._started < target:
                if time.monotonic() > deadline:
                    self.timed_out = True
                    break
                time.sleep(0.001)
            time.sleep(self._seconds)
        return worker_step


class TestStaleness:
    def test_a_held_worker_is_as_stale_as_the_others_were_busy(
        self, make_trainer: MakeTrainer
    ) -> None:
        """Meanwhile 40 batches start; all except those under way are applied."""
        slow = SlowBatches(behind=40)
        workload = replace(
            CONSTANT, data=lambda: replace(constant_data(), transform=slow.transform)
        )
        trainer = make_trainer(workload, 4)
        slow.held_step = 60
        record = trainer.train(spec_of(workload, 4, 0.0))
        assert not slow.timed_out
        (phase,) = record.phases
        # 3 others may not have applied theirs; 4 may have been applied before the pull was read.
        assert 40 - 3 - 4 <= phase.max_staleness < 200
        assert phase.mean_staleness >= phase.max_staleness / 200
        assert phase.mean_staleness <= 4 + phase.max_staleness / 200

    def test_each_phase_has_its_own(self, make_trainer: MakeTrainer) -> None:
        slow = SlowBatches(behind=30)
        workload = replace(
            CONSTANT, data=lambda: replace(constant_data(), transform=slow.transform)
        )
        trainer = make_trainer(workload, 4)
        slow.held_step = 20
        record = trainer.train(spec_of(workload, 4, 50.0, protocols=("asp", "bsp")))
        assert record.phases[0].max_staleness >= 30 - 7
        assert record.phases[1].max_staleness == 0


class TestOrderOfTheData:
    NUMBERS = np.arange(50, dtype=np.float32).reshape(-1, 1) * np.ones((1, 4), np.float32)

    def log_of(
        self, make_trainer: MakeTrainer, workers: int, switch_percent: float
    ) -> dict[int, list[int]]:
        log = BatchLog()
        labels = np.zeros((len(self.NUMBERS), 1), np.float32)
        data = Data(self.NUMBERS, labels, self.NUMBERS, labels, transform=log.transform)
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
        self, make_trainer: MakeTrainer
    ) -> None:
        """Neither workers nor protocols change the batches."""
        batches = self.log_of(make_trainer, 4, 50.0)
        row = list(chain(*(batches[step] for step in range(125))))
        for epoch in range(15):
            assert Counter(row[50 * epoch : 50 * epoch + 50]) == Counter(range(50))
        assert self.log_of(make_trainer, 1, 100.0) == batches
        assert self.log_of(make_trainer, 5, 0.0) == batches


class TestSmallJobs:
    @pytest.mark.parametrize("W", [1, 3, 5])
    @pytest.mark.parametrize("switch_percent", [0.0, 50.0, 100.0])
    def test_shorter_than_a_round_or_two(
        self, make_trainer: MakeTrainer, tmp_path: Path, W: int, switch_percent: float
    ) -> None:
        workload = SMALL[W]
        trainer = make_trainer(workload, 4)
        record, state = train_to_end(trainer, spec_of(workload, 4, switch_percent), tmp_path)
        assert record.worker_steps == W
        assert record.evaluations[-1].worker_step == W
        if switch_percent == 100.0:
            rounds = [4] * (W // 4) + ([W % 4] if W % 4 else [])
            assert state.updates == len(rounds)
            # Each round at its own number of gradients: n' * eta.
            parameters, accumulator = np.ones(4), np.zeros(4)
            for members in rounds:
                accumulator = 0.9 * accumulator + np.array([1.0, 2.0, -3.0, 0.5])
                parameters = parameters - members * 0.01 * accumulator
            np.testing.assert_allclose(state.parameters, parameters, rtol=1e-5)


SMALL = {W: replace(CONSTANT, total_worker_steps=W) for W in (1, 3, 5)}


class TestRecordOfManyEvaluations:
    def test_one_after_each_update_has_a_loss_and_a_time(self, make_trainer: MakeTrainer) -> None:
        """The tightest schedule: an evaluation is due with each push of each worker."""
        record = make_trainer(EAGER, 4).train(spec_of(EAGER, 4, 50.0))
        steps = [evaluation.worker_step for evaluation in record.evaluations]
        assert steps == [*range(4, 101, 4), *range(101, 201)]
        seconds = [evaluation.elapsed_seconds for evaluation in record.evaluations]
        assert seconds == sorted(seconds)
        losses = [evaluation.training_loss for evaluation in record.evaluations]
        assert np.isfinite(losses).all()


def test_who_looks_on_knows_of_each_checkpoint(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """Otherwise a chief could be lost before the step from which the run goes on."""
    percents = (20.0, 50.0, 100.0)
    spec = spec_of(CONSTANT, 4, 50.0, checkpoint_percents=percents, checkpoint_directory=tmp_path)
    observer = RecordingObserver()
    make_trainer(CONSTANT, 4).train(spec, observer)
    steps = {round(CONSTANT.total_worker_steps * percent / 100) for percent in percents}
    assert steps <= set(observer.progress)


EAGER = replace(CONSTANT, evaluation_interval_worker_steps=1)
