from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.cluster.exchange.vectors import aligned
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.optimizer import make_optimizer
from syncswitch.trainers.model.shipped import ShippedFunction
from syncswitch.trainers.model.steps import (
    as_array,
    as_tensor,
    flat_update,
    trace_step,
    trace_update,
)
from tests.trainers.clicks import of_keras
from tests.trainers.jobs import (
    BRIEF,
    CONSTANT,
    CONSTANT_GRADIENT,
    Gate,
    constant_data,
    digits_model,
)
from tests.trainers.shipping import received

Step = Callable[..., Sequence[Any]]


def random_model(keras: Any) -> Any:
    """With seeds of layers that are not trained, and a constant that is none of its weights."""
    of = keras.layers
    return digits_model(
        of.GaussianNoise(0.1),
        of.Rescaling(np.linspace(0.5, 1.5, 64).astype(np.float32)),
        of.Dense(8, kernel_regularizer="l2"),
        of.BatchNormalization(),
        of.Dropout(0.5),
    )


def noisy_data() -> Data:
    import tensorflow as tf

    shifts = tf.constant(np.linspace(-1, 1, 8), tf.float32)
    scale = tf.Variable(2.0)

    def transform(inputs: Any, labels: Any, seed: Any) -> Any:
        noise = tf.random.stateless_normal(tf.shape(inputs), seed)
        return scale * inputs + noise * shifts[:, None], labels

    return replace(BRIEF.load_data(), transform=transform)


def vector(size: int, seed: int = 0) -> Vector:
    found = aligned(size)
    found[:] = 0.1 * np.random.default_rng(seed).standard_normal(size)
    return found


def traced(workload: Workload, data: Data | None = None) -> tuple[ModelFunction, Data, Any]:
    data = data or workload.load_data()
    function = ModelFunction(workload, data)
    return function, data, trace_step(function, data)


def computed(step: Step, data: Data, model: Vector, worker_step: int = 3) -> Vector:
    """What a worker-step computes: loss, gradient and contribution in one vector."""
    import tensorflow as tf

    numbers = tf.constant([worker_step, 7], tf.int64)
    loss, contribution, *gradients = step(
        as_tensor(model), tf.constant(data.train_inputs), tf.constant(data.train_labels), numbers
    )
    return np.concatenate([np.ravel(part) for part in (loss, *gradients, contribution)])


def shipped(function: Any) -> Callable[..., Sequence[Any]]:
    """The function after it has been sent."""
    return received(ShippedFunction.of(function, CONSTANT)).restored()


class TestStep:
    def test_a_long_gradient_comes_in_the_parts_of_its_variables(self, keras: Any) -> None:
        inputs = np.ones((8, 300_000), np.float32)
        labels = np.zeros((8, 1), np.float32)

        def model() -> Any:
            dense = keras.layers.Dense(1, kernel_initializer="zeros")
            return keras.Sequential([keras.Input((300_000,)), dense])

        data = Data(inputs, labels, inputs, labels)
        *_, step = traced(replace(CONSTANT, model=model), data)
        assert [tuple(one.shape) for one in step.outputs[2:]] == [(300_000,), (1,)]
        np.testing.assert_array_equal(computed(step, data, vector(300_001))[1:], 1.0)

    def test_its_batch_is_made_beside_the_device_of_its_gradient(self) -> None:
        data = BRIEF.load_data()
        step = trace_step(ModelFunction(BRIEF, data), data, "/device:CPU:0")
        by_type: dict[str, set[str]] = {}
        for operation in step.graph.get_operations():
            by_type.setdefault(operation.type, set()).add(operation.device)
        assert by_type["RandomIndexShuffle"] == by_type["GatherV2"] == {"/device:CPU:0"}
        assert by_type["MatMul"] == {""}, "wherever the step is told to run"


class TestShipped:
    @pytest.mark.parametrize("is_transformed", [False, True])
    def test_a_step_computes_the_same_bits(self, keras: Any, is_transformed: bool) -> None:
        workload = replace(BRIEF, model=lambda: random_model(keras))
        function, data, step = traced(workload, noisy_data() if is_transformed else None)
        restored = shipped(step)
        for worker_step in (0, 3, 1000):
            values = vector(function.parameters.size + function.statistics.size, worker_step)
            expected = computed(step, data, values, worker_step)
            np.testing.assert_array_equal(computed(restored, data, values, worker_step), expected)
            assert np.isfinite(expected).all()

    @pytest.mark.parametrize(
        "optimizer",
        [
            None,
            *map(of_keras, ["Adam", "AdamW", "Lion"]),
            of_keras("SGD", momentum=0.9, nesterov=True),
        ],
    )
    def test_an_optimizer_computes_the_same_bits(self, optimizer: Any) -> None:
        workload = replace(CONSTANT, optimizer=optimizer)
        made = make_optimizer(workload, ModelFunction(CONSTANT, constant_data()).parameters)
        here, there = (
            flat_update(function)
            for function in (trace_update(made, 4), shipped(trace_update(made, 4)))
        )
        states = [(np.ones(4, np.float32), made.initial_slots())] * 2
        for updates in range(5):
            states = [
                update(*map(np.copy, state), updates, CONSTANT_GRADIENT, 0.1, 0.9)
                for update, state in zip((here, there), states, strict=True)
            ]
            for mine, yours in zip(*states, strict=True):
                np.testing.assert_array_equal(mine, yours)
        assert not np.allclose(states[0][0], 1.0)

    def test_each_has_variables_of_its_own(self) -> None:
        """Keras' optimizers keep their state in variables while they work."""
        import tensorflow as tf

        kept = tf.Variable(1.0)
        function = tf.function(lambda: kept.assign_add(1.0)).get_concrete_function()
        first, second = shipped(function), shipped(function)
        assert [float(first()[0]), float(first()[0]), float(second()[0])] == [2.0, 3.0, 2.0]
        assert float(kept) == 1.0

    def test_the_functions_that_it_calls_come_with_it(self) -> None:
        import tensorflow as tf

        def sent() -> bytes:
            inner = tf.function(lambda value: 3.0 * value)
            outer = tf.function(lambda value: inner(value) + tf.map_fn(inner, value))
            function = outer.get_concrete_function(tf.TensorSpec([2], tf.float32))
            return msgspec.msgpack.encode(ShippedFunction.of(function, CONSTANT))

        content = sent()
        # As in another process, nothing is left of what was traced.
        gc.collect()
        function = msgspec.msgpack.decode(content, type=ShippedFunction).restored()
        gc.collect()
        assert function(tf.constant([1.0, 2.0]))[0].numpy().tolist() == [6.0, 12.0]

    def test_what_others_cannot_have_is_one_line(self) -> None:
        import tensorflow as tf

        keys = tf.constant([0, 1], tf.int64)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys), 0)

        def with_numpy(inputs: Any) -> Any:
            passed = tf.map_fn(
                lambda one: tf.numpy_function(np.sin, [one], tf.float32, stateful=False), inputs
            )
            return tf.ensure_shape(passed, inputs.shape)

        for change, what in (
            (lambda x, seed: x + tf.cast(table.lookup(seed)[0], tf.float32), "a table"),
            (lambda x, seed: Gate(-1).transform(x, x, seed)[0], r"of Python \(EagerPyFunc\)"),
            (lambda x, seed: with_numpy(x), r"a function of Python \(PyFuncStateless\)"),
        ):
            words = (
                "^workload 'constant-gradient': its model, loss, transform or pipeline uses "
                f".*{what}.*do without it, or use --launcher in-process$"
            )
            data = replace(
                constant_data(), transform=lambda x, y, seed, change=change: (change(x, seed), y)
            )
            *_, step = traced(CONSTANT, data)
            with pytest.raises(WorkloadError, match=words):
                ShippedFunction.of(step, CONSTANT)


def test_arrays_are_read_where_they_lie_unless_tensorflow_could_not() -> None:
    for values, expected in ((aligned(1000), 1.0), (aligned(1001)[1:], 0.0)):
        tensor = as_tensor(values)
        values += 1.0
        np.testing.assert_array_equal(tensor.numpy(), expected)
        assert np.shares_memory(as_array(tensor), values) is bool(expected)
    for size in (0, 1):
        for values in (np.ones(size, np.float32), aligned(size)):
            np.testing.assert_array_equal(as_array(as_tensor(values)), values)


def test_arrays_are_passed_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow tells once that something is deprecated, in every process."""
    import tensorflow as tf
    from tensorflow.python.util import deprecation

    said: list[object] = []
    monkeypatch.setattr(deprecation, "_PRINTED_WARNING", {})
    monkeypatch.setattr(tf.get_logger(), "handle", said.append)
    as_array(as_tensor(aligned(3)))
    as_array(tf.constant([1.0]))
    assert said == []
