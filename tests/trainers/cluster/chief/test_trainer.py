from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import FatalError, RetryableError, UserError
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.cluster.chief.coordinator import Coordinator
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.cluster.exchange.plans import Task
from syncswitch.trainers.cluster.exchange.worker import Worker
from syncswitch.trainers.cluster.members.cluster import Cluster, ServerLostError, WorkerLostError
from syncswitch.trainers.cluster.members.threads import ThreadsCluster
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.trainer import Verdict
from tests.trainers.batch_contract import BatchContract
from tests.trainers.clicks import adam
from tests.trainers.final import assert_bitwise_equal, final_state, train_to_end
from tests.trainers.guard_contract import GuardContract
from tests.trainers.jobs import (
    BRIEF,
    CONSTANT,
    DENSE,
    RecordingObserver,
    dense_model,
    momentum_answer,
    normalized_model,
    spec_of,
)
from tests.trainers.reference import relative_error
from tests.trainers.trainer_contract import LONG, ForkContract

MakeTrainer = Callable[[Workload, int], ClusterTrainer]

NORMALIZED = replace(BRIEF, name="normalized", model=normalized_model)


class TestClusterTrainer(ForkContract):
    """Threads of this process."""


class TestGuardedRuns(GuardContract):
    """Threads of this process."""

    spec_of = staticmethod(spec_of)


class TestBatchAfterTheSwitch(BatchContract):
    """Threads of this process."""

    spec_of = staticmethod(spec_of)


class Batches:
    """The batches of a job, which depend only on worker-step and seed."""

    def __init__(self, workload: Workload, seed: int) -> None:
        import tensorflow as tf

        data = workload.data()
        self._seed = np.int64(seed)
        self._function = ModelFunction(workload, data)
        self._data = tf.constant(data.train_inputs), tf.constant(data.train_labels)

    def of(self, first: int, count: int) -> tuple[Any, Any]:
        """Concatenates the batches of consecutive worker-steps."""
        parts = [
            self._function.batch(self._data, np.int64(step), self._seed)
            for step in range(first, first + count)
        ]
        inputs = np.concatenate([part[0].numpy() for part in parts])
        return inputs, np.concatenate([part[1].numpy() for part in parts])


def joined(values: Any) -> np.ndarray:
    return np.concatenate([np.asarray(value).ravel() for value in values])


class TestBspIsSequentialSgd:
    """Compared with a plain training loop without workers."""

    ROUNDS = 30

    def test_with_the_global_batch(
        self, keras: Any, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        import tensorflow as tf

        workload = replace(DENSE, total_worker_steps=4 * self.ROUNDS + 3)
        workload = replace(workload, learning_rate_boundaries=((100, 0.1),))
        spec = spec_of(workload, 4, 100.0, seed=6)
        state = final_state(make_trainer(workload, 4), spec, tmp_path)

        batches = Batches(workload, seed=6)
        keras.utils.set_random_seed(6)
        model = dense_model()
        loss_of = keras.losses.SparseCategoricalCrossentropy()
        accumulators = [np.zeros(v.shape, np.float32) for v in model.trainable_variables]
        # The last round has only 3 worker-steps left: 3 batches at 3 times the rate.
        for first in range(0, workload.total_worker_steps, 4):
            members = min(4, workload.total_worker_steps - first)
            inputs, labels = batches.of(first, members)
            assert len(inputs) == members * workload.batch_size
            rate = members * workload.learning_rate * (1.0 if first < 100 else 0.1)
            with tf.GradientTape() as tape:
                loss = loss_of(labels, model(inputs, training=True))
            variables = model.trainable_variables
            gradients = tape.gradient(loss, [variable.value for variable in variables])
            for index, (variable, gradient) in enumerate(zip(variables, gradients, strict=True)):
                accumulators[index] = 0.9 * accumulators[index] + gradient.numpy()
                variable.assign(variable - rate * accumulators[index])

        assert state.updates == self.ROUNDS + 1
        assert relative_error(state.parameters, joined(model.trainable_variables)) < 1e-5
        assert relative_error(state.slots, joined(accumulators)) < 1e-4

    def test_with_batch_normalization_per_worker(
        self, keras: Any, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """Each worker normalizes its own batch; gradients and statistics are averaged."""
        import tensorflow as tf

        rounds, workers = 6, 4
        workload = replace(
            NORMALIZED, total_worker_steps=rounds * workers, learning_rate_boundaries=()
        )
        spec = spec_of(workload, workers, 100.0, seed=6)
        state = final_state(make_trainer(workload, workers), spec, tmp_path)

        batches = Batches(workload, seed=6)
        keras.utils.set_random_seed(6)
        model = normalized_model()
        loss_of = keras.losses.SparseCategoricalCrossentropy()
        accumulator = 0.0
        for first in range(0, rounds * workers, workers):
            start = [value.numpy() for value in model.non_trainable_variables]
            gradients, moved = [], []
            for step in range(first, first + workers):
                for variable, value in zip(model.non_trainable_variables, start, strict=True):
                    variable.assign(value)
                inputs, labels = batches.of(step, 1)
                with tf.GradientTape() as tape:
                    loss = loss_of(labels, model(inputs, training=True))
                values = [variable.value for variable in model.trainable_variables]
                gradients.append(joined(tape.gradient(loss, values)))
                moved.append([value.numpy() for value in model.non_trainable_variables])
            for index, variable in enumerate(model.non_trainable_variables):
                variable.assign(np.mean([values[index] for values in moved], axis=0))
            accumulator = workload.momentum * accumulator + np.mean(gradients, axis=0)
            change, position = workers * workload.learning_rate * accumulator, 0
            for variable in model.trainable_variables:
                size = int(np.prod(variable.shape))
                part = change[position : position + size].reshape(variable.shape)
                variable.assign(variable - part)
                position += size

        assert relative_error(state.parameters, joined(model.trainable_variables)) < 1e-4
        assert relative_error(state.statistics, joined(model.non_trainable_variables)) < 1e-4

    def test_of_one_worker_all_protocols_are_the_same(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """A switch keeps parameters, momentum and the position in the data."""
        trainer = make_trainer(NORMALIZED, 1)

        def final(switch_percent: float, protocols: tuple[str, str]) -> ModelState:
            spec = spec_of(NORMALIZED, 1, switch_percent, protocols=protocols)
            return final_state(trainer, spec, tmp_path)

        whole = final(100.0, ("bsp", "asp"))
        for switch_percent, protocols in [(37.0, ("bsp", "asp")), (61.0, ("asp", "bsp"))]:
            state = final(switch_percent, protocols)
            assert relative_error(state.parameters, whole.parameters) < 1e-5
            assert relative_error(state.slots, whole.slots) < 1e-4
            assert relative_error(state.statistics, whole.statistics) < 1e-5
            assert state.updates == whole.updates


class TestTheSwitch:
    def test_the_whole_job_has_the_known_answer(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """With a constant gradient each update is known: rounds at 4 eta, then pushes at eta."""
        workload = replace(CONSTANT, learning_rate_boundaries=((40, 0.1),))
        trainer = make_trainer(workload, 4)
        record, state = train_to_end(trainer, spec_of(workload, 4, 50.0), tmp_path)
        rates = [0.04] * 10 + [0.004] * 15 + [0.001] * 100
        parameters, accumulator = momentum_answer(rates, 0.9)
        assert [phase.end_worker_step for phase in record.phases] == [100, 200]
        assert state.updates == len(rates)
        np.testing.assert_allclose(state.parameters, parameters, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(state.slots, accumulator, rtol=1e-5)

    @pytest.mark.parametrize("pair", [("bsp", "asp"), ("asp", "bsp")])
    def test_rates_follow_worker_steps_and_the_size_of_the_round(
        self, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, pair: tuple[str, str]
    ) -> None:
        workload = replace(
            CONSTANT,
            total_worker_steps=103,
            learning_rate=0.5,
            learning_rate_boundaries=((30, 0.1), (80, 0.01)),
        )
        trainer = make_trainer(workload, 4)
        pushes, rounds = [], []
        step, apply_round = Cluster.step, Cluster.apply_round

        def push(cluster: Cluster, worker: int, task: Task) -> Any:
            if task.exchange is Exchange.PUSH:
                pushes.append((task.worker_step, task.rate))
            return step(cluster, worker, task)

        def apply(cluster: Cluster, workers: Any, rate: float, momentum: float) -> Any:
            rounds.append((len(workers), rate))
            return apply_round(cluster, workers, rate, momentum)

        monkeypatch.setattr(Cluster, "step", push)
        monkeypatch.setattr(Cluster, "apply_round", apply)
        record = trainer.train(spec_of(workload, 4, 50.0, protocols=pair))
        bsp = next(phase for phase in record.phases if phase.protocol == "bsp")

        def eta(step: int) -> float:
            return 0.5 if step < 30 else 0.05 if step < 80 else 0.005

        expected, first = [], bsp.start_worker_step
        while first < bsp.end_worker_step:
            members = min(4, bsp.end_worker_step - first)
            expected.append((members, pytest.approx(members * eta(first))))
            first += members
        assert rounds == expected
        in_asp = set(range(103)) - set(range(bsp.start_worker_step, bsp.end_worker_step))
        assert sorted(pushes) == [(one, pytest.approx(eta(one))) for one in sorted(in_asp)]


class TestForks:
    def test_of_bsp_end_bitwise_where_the_whole_run_does(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """Runs repeat to the last bit; another seed is another run."""
        trainer, spec = make_trainer(NORMALIZED, 4), spec_of(NORMALIZED, 4, 100.0)
        plain = final_state(trainer, spec, tmp_path)
        percents = (10.0, 93.0)
        whole, state = train_to_end(trainer, replace(spec, checkpoint_percents=percents), tmp_path)
        assert_bitwise_equal(state, plain)
        for percent in percents:
            fork = replace(spec, fork_from=whole.checkpoints[percent])
            assert_bitwise_equal(final_state(trainer, fork, tmp_path / f"{percent}"), plain)
        other = final_state(trainer, replace(spec, seed=2), tmp_path)
        assert not np.allclose(other.parameters, plain.parameters)

    def test_keep_the_state_of_a_keras_optimizer_and_of_dropout(
        self, keras: Any, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        def model() -> Any:
            return keras.Sequential(
                [
                    keras.Input((8, 8, 1)),
                    keras.layers.Flatten(),
                    keras.layers.Dropout(0.3),
                    keras.layers.Dense(10, activation="softmax"),
                ]
            )

        workload = replace(
            BRIEF, model=model, optimizer=lambda: keras.optimizers.Adam(), learning_rate=0.002
        )
        trainer = make_trainer(workload, 2)
        spec = spec_of(workload, 2, 100.0, checkpoint_percents=(50.0,))
        whole, plain = train_to_end(trainer, spec, tmp_path)
        fork = spec_of(workload, 2, 100.0, fork_from=whole.checkpoints[50.0])
        assert_bitwise_equal(final_state(trainer, fork, tmp_path / "fork"), plain)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"model": lambda: bent_model()}, "another model"),
            ({"optimizer": lambda: adam()}, "optimizer"),
            ({"total_worker_steps": 400}, "beyond"),
        ],
        ids=["model", "optimizer", "end"],
    )
    def test_from_another_job_are_refused(
        self, make_trainer: MakeTrainer, tmp_path: Path, change: dict[str, Any], words: str
    ) -> None:
        other = replace(CONSTANT, **change)
        with ClusterTrainer(other, 1) as trainer:
            spec = spec_of(other, 1, 100.0, checkpoint_percents=(60.0,))
            record = trainer.train(replace(spec, checkpoint_directory=tmp_path))
        with pytest.raises(UserError, match=words):
            make_trainer(CONSTANT, 4).train(
                spec_of(CONSTANT, 4, 100.0, fork_from=record.checkpoints[60.0])
            )


def bent_model() -> Any:
    """Its parameters have the shapes of those of `CONSTANT`."""
    from keras import Input, Sequential, layers

    return Sequential([Input((4,)), layers.Dense(1, "tanh", use_bias=False)])


class TestErrors:
    def test_a_signal_stops_the_run(self, make_trainer: MakeTrainer) -> None:
        """Control-C arrives in the main thread, whichever thread caused it."""

        def interrupt(evaluation: Evaluation) -> Verdict:
            if len(observer.evaluations) == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return Verdict.CONTINUE

        observer = RecordingObserver(interrupt)
        with pytest.raises(KeyboardInterrupt):
            make_trainer(LONG, 4).train(spec_of(LONG, 4, 50.0), observer)
        assert observer.evaluations[-1].worker_step < LONG.total_worker_steps

    def test_a_signal_that_comes_between_two_locks_stops_the_run(
        self, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Python's conditions do not notice that they do not hold their lock again."""

        def interrupted(*_: Any) -> Any:
            try:
                raise KeyboardInterrupt
            finally:
                threading.Lock().release()

        monkeypatch.setattr(Coordinator, "wait_until_drained", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make_trainer(LONG, 4).train(spec_of(LONG, 4, 50.0))

    @pytest.mark.parametrize("pair", [("bsp", "asp"), ("asp", "bsp")])
    def test_a_parameter_server_that_is_lost_again_and_again_may_be_tried_again(
        self, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, pair: tuple[str, str]
    ) -> None:
        """It is lost in a push or before a round is applied, and once as soon as it is replaced."""

        def lost_worker(*_: Any) -> Any:
            raise WorkerLostError("worker 1 is gone")

        def lost_server(*_: Any) -> Any:
            raise ServerLostError("connection reset")

        if pair[0] == "asp":
            monkeypatch.setattr(Cluster, "step", lost_worker)
            monkeypatch.setattr(ThreadsCluster, "fence", lost_server)
        else:
            monkeypatch.setattr(Cluster, "apply_round", lost_server)
        starts = []

        def restart(cluster: ThreadsCluster) -> None:
            starts.append(1)
            if len(starts) == 2:
                raise ServerLostError("connection reset")
            cluster.renew()

        monkeypatch.setattr(ThreadsCluster, "restart_servers", restart)
        observer = RecordingObserver()
        message = r"^the parameter server was lost 11 times \(connection reset\)$"
        with pytest.raises(RetryableError, match=message):
            make_trainer(LONG, 4).train(spec_of(LONG, 4, 50.0, protocols=pair), observer)
        assert len(starts) == 10
        assert Counter(event.kind for event in observer.events)["rebuilt"] == 9

    def test_one_that_is_lost_between_two_runs_may_be_tried_again(
        self, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def lost(cluster: Cluster) -> None:
            raise ServerLostError("connection reset")

        monkeypatch.setattr(ThreadsCluster, "repair", lost)
        with pytest.raises(RetryableError, match=r"^connection reset$"):
            make_trainer(LONG, 4).train(spec_of(LONG, 4, 50.0))

    def test_a_defect_is_fatal_and_named(
        self, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trainer = make_trainer(LONG, 4)

        def broken(*_: Any) -> Any:
            raise ZeroDivisionError("by zero")

        monkeypatch.setattr(Worker, "step", broken)
        with pytest.raises(FatalError, match=r"ZeroDivisionError.*by zero"):
            trainer.train(spec_of(LONG, 4, 0.0))
