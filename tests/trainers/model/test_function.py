from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from syncswitch.trainers.cluster.exchange.vectors import aligned
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import (
    ModelFunction,
    as_array,
    as_tensor,
    decay_of,
    trace_step,
)
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.shipped import ShippedFunction
from tests.failing import fails
from tests.trainers.jobs import BRIEF, CONSTANT, Gate, constant_data, digits_model
from tests.trainers.shipping import received


def test_the_seed_of_a_transform_is_that_of_the_batch() -> None:
    import tensorflow as tf

    def noise(inputs: Any, labels: Any, seed: Any) -> Any:
        return inputs + tf.random.stateless_normal(tf.shape(inputs), seed), labels

    data = replace(constant_data(), transform=noise)
    function = ModelFunction(CONSTANT, data)
    arrays = tf.constant(data.train_inputs), tf.constant(data.train_labels)

    def batch(step: int, seed: int) -> Any:
        return function.batch(arrays, np.int64(step), np.int64(seed))[0].numpy()

    np.testing.assert_array_equal(batch(5, 1), batch(5, 1))
    assert not np.allclose(batch(5, 1), batch(6, 1))
    assert not np.allclose(batch(5, 1), batch(5, 2))


X = np.array([3.0, -5.0, 70_000.0, 0.0], np.float32)
START = np.array([0.0, 1.0, 1.0, 0.0], np.float32)


def average(m: float) -> Callable[[Any], Any]:
    return lambda s: np.float32(m) * s + np.float32(1 - m) * X


FACTORS = np.array([0.9, 1.0, 0.0, 0.99], np.float32)


def dependent(s: Any) -> Any:
    """The second follows from the first, the last is an average of the first's square."""
    first = np.float32(0.9) * s[0] + X[0]
    return np.array([first, 2 * first + 1, s[2], 0.5 * s[3] + first**2], np.float32)


@pytest.mark.parametrize(
    ("move", "decay"),
    [
        *((average(m), m) for m in (0.0, 0.1, 0.9, 0.99, 0.999, 0.9999)),
        pytest.param(lambda s: s + X, 1, id="sum"),
        pytest.param(lambda s: s, 1, id="constant"),
        pytest.param(lambda s: X, 0, id="replaced"),
        pytest.param(lambda s: np.maximum(s, X), 0, id="maximum"),
        pytest.param(lambda s: s[::-1], 0, id="permuted"),
        pytest.param(lambda s: s / np.linalg.norm(s + 1), 0, id="normalized"),
        pytest.param(lambda s: np.sqrt(s), 0, id="root"),
        pytest.param(lambda s: FACTORS * s + X, FACTORS, id="each its own"),
        pytest.param(dependent, [0.9, 0.0, 1.0, 0.5], id="of its own value"),
    ],
)
def test_the_decay_of_a_known_update_is_its_factor_or_0(move: Any, decay: Any) -> None:
    expected = np.broadcast_to(np.array(decay, np.float32), 4)
    np.testing.assert_array_equal(decay_of(move, START), expected)


def test_whole_values_are_moved_by_whole_numbers() -> None:
    """As a counter that is looked up in a table."""

    def counted(s: Any) -> Any:
        assert (s[2:] == np.rint(s[2:])).all()
        return s + np.float32(1)

    decay = decay_of(counted, np.array([0.3, 0.5, 1, 7], np.float32), np.arange(4) > 1)
    np.testing.assert_array_equal(decay, 1)


def renormalized(of: Any) -> Any:
    return of.BatchNormalization(momentum=0.9, renorm=True, renorm_momentum=0.8)


@pytest.mark.parametrize("settings", [{}, {"batch_size": CONSTANT.batch_size}])
@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        # Of batch normalization it is the momentum.
        (lambda of: [of.BatchNormalization(momentum=0.99) for _ in range(3)], [0.99] * 6),
        # Frozen, its scale and offset are statistics as well, as they are not trained.
        (
            lambda of: [
                of.BatchNormalization(trainable=False),
                of.BatchNormalization(momentum=0.9),
            ],
            [1.0] * 4 + [0.9] * 2,
        ),
        # The variance of batch renormalization follows from the deviation.
        (lambda of: [renormalized(of)], [0.9, 0.0, 0.9, 0.8, 0.8]),
        (lambda of: [of.LayerNormalization()], []),
    ],
)
def test_the_decay_of_a_layer(
    keras: Any, settings: dict[str, int], layers: Any, expected: list[float]
) -> None:
    inputs = keras.Input((4,), **settings)
    outputs = inputs
    for layer in layers(keras.layers):
        outputs = layer(outputs)
    random = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    model = keras.Model(inputs, keras.layers.Dense(1)(outputs))
    function = ModelFunction(CONSTANT, replace(constant_data(), train_inputs=random), model)
    named = function.statistics.name(function.statistics_decay)
    assert len(named) == len(expected)
    for (name, values), decay in zip(named.items(), expected, strict=True):
        np.testing.assert_allclose(values, decay, rtol=1e-7, err_msg=name)


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
                f".*{what}.*do without it, or use launcher='in-process'$"
            )
            data = replace(
                constant_data(), transform=lambda x, y, seed, change=change: (change(x, seed), y)
            )
            *_, step = traced(CONSTANT, data)
            with fails("workload-unsuitable", words):
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
