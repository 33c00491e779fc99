from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import FatalError
from syncswitch.trainers.cluster.exchange.plans import SERVER, Push, Task
from syncswitch.trainers.cluster.members.cluster import Cluster, ThreadsCluster, WorkerLostError
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.protocols import Exchange
from tests.trainers.clicks import of_keras
from tests.trainers.cluster.members.cluster_contract import (
    ROWS,
    ClusterContract,
    MakeCluster,
    fresh,
    in_parallel,
    step,
)
from tests.trainers.final import assert_bitwise_equal
from tests.trainers.jobs import CONSTANT, CONSTANT_GRADIENT, DENSE, Gate, constant_data
from tests.wording import Said


def cluster_of(model: Callable[[], Any], **changes: Any) -> Cluster:
    """Returns a cluster of one worker with a fresh state."""
    workload = replace(CONSTANT, model=model, **changes)
    cluster = ThreadsCluster(Program(workload, workload.load_data()), 1)
    cluster.load(cluster.program.checkpoints.initial(0))
    return cluster


def push(cluster: Cluster, step: int = 0, rate: float = 1.0, seed: int = 0) -> Push:
    task = Task(next(cluster.numbers), step, seed, Exchange.PUSH, rate, 0.0)
    return cluster.step(0, task)


def dense(keras: Any, *before: Any) -> Any:
    """A linear model whose weights are ones."""
    last = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    return keras.Sequential([keras.Input((4,)), *before, last])


def frozen(keras: Any) -> Any:
    first = keras.layers.Dense(4, use_bias=False, kernel_initializer="identity", trainable=False)
    return dense(keras, first)


def subclassed(keras: Any, *, has_mode: bool = False) -> Any:
    class Plain(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")

        def call(self, inputs: Any) -> Any:
            return 2.0 * self.dense(inputs)

    class WithMode(Plain):
        def call(self, inputs: Any, training: bool = False) -> Any:
            return super().call(inputs)

    built = WithMode() if has_mode else Plain()
    built(np.zeros((1, 4), np.float32))
    return built


class TestModels:
    @pytest.mark.parametrize(
        ("model", "gradient"),
        [
            (frozen, CONSTANT_GRADIENT),
            (subclassed, 2 * CONSTANT_GRADIENT),
            (partial(subclassed, has_mode=True), 2 * CONSTANT_GRADIENT),
        ],
    )
    def test_a_push_moves_the_trained_weights_alone(
        self, keras: Any, model: Callable[[Any], Any], gradient: np.ndarray
    ) -> None:
        cluster = cluster_of(lambda: model(keras))
        push(cluster)
        state = cluster.state()
        np.testing.assert_allclose(state.parameters, 1 - gradient, rtol=1e-2)
        if model is frozen:
            np.testing.assert_array_equal(state.statistics, np.eye(4).ravel())

    def test_dropout_differs_between_batches_and_repeats_with_a_step(self, keras: Any) -> None:
        cluster = cluster_of(lambda: dense(keras, keras.layers.Dropout(0.5)), batch_size=16)

        def losses(seed: int) -> list[float]:
            return [push(cluster, step, 0.0, seed).loss for step in range(8)]

        assert len(set(losses(1))) > 4
        assert losses(1) == losses(1) != losses(2)
        function = cluster.program.function
        outputs = function.predict(*cluster.snapshot(), CONSTANT_GRADIENT.reshape(1, 4))
        assert float(outputs[0, 0]) == pytest.approx(CONSTANT_GRADIENT.sum())


def built_in_name_alone(keras: Any) -> Any:
    class Mine(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(10)

        def build(self, shape: Any) -> None:
            self.built = True

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

    model = Mine()
    model.build((None, 8, 8, 1))
    return model


def unbuilt(keras: Any) -> Any:
    return keras.Sequential([keras.layers.Dense(10)])


def scheduled(keras: Any) -> Any:
    return keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5))


def test_what_does_not_fit_is_refused_in_one_line(keras: Any, said: Said) -> None:
    for field, value in (
        ("model", unbuilt),
        ("model", built_in_name_alone),
        ("model", lambda keras: None),
        ("loss", "categorical_hinge"),
        ("loss", "mse"),
        ("optimizer", scheduled),
    ):
        changes = {field: partial(value, keras) if callable(value) else value}
        workload = replace(DENSE, **changes)
        data = workload.load_data()
        said.refusal("workload-unsuitable", Program, workload, data)


def test_a_loss_given_for_the_function_that_builds_it_is_taken(keras: Any) -> None:
    loss = keras.losses.sparse_categorical_crossentropy
    assert Program(replace(DENSE, loss=loss), DENSE.load_data()).workload.name == DENSE.name


def secretive() -> Any:
    from keras import optimizers

    class Secretive(optimizers.SGD):
        def build(self, variables: Any) -> None:
            super().build(variables)
            self.history = self.add_variable((5,), name="history")

    return Secretive()


def test_updates_that_need_all_in_one_place_are_refused(said: Said) -> None:
    for optimizer in (of_keras("SGD", global_clipnorm=1.0), secretive):
        workload = replace(CONSTANT, optimizer=optimizer)
        program = Program(workload, workload.load_data())
        assert len(program.shards(1)) == 1
        said.refusal("parameter-invalid", program.shards, 2)


@pytest.fixture
def make_cluster(threads_of: MakeCluster) -> MakeCluster:
    return threads_of


class TestThreadsCluster(ClusterContract):
    def test_there_is_nobody_to_send_a_signal_to(self, make_cluster: MakeCluster) -> None:
        with pytest.raises(FatalError, match="ps 0 is not a process of its own"):
            make_cluster(ROWS, 3).signal((SERVER, 0), signal.SIGKILL)

    def test_after_a_fence_nothing_counts_of_who_was_there(self, make_cluster: MakeCluster) -> None:
        gate = Gate(worker_step=500)
        data = replace(constant_data(), transform=gate.transform)
        cluster = make_cluster(replace(CONSTANT, data=lambda: data), 2)
        state = fresh(cluster)

        def be_late() -> None:
            with pytest.raises(WorkerLostError, match="worker 1 was replaced"):
                step(cluster, 1, 500)

        def fence() -> None:
            assert gate.entered.wait(30)
            cluster.fence(1)
            gate.open.set()

        in_parallel(be_late, fence)
        assert_bitwise_equal(cluster.state(), state)
        assert step(cluster, 1, 0).pushed_updates == 1
