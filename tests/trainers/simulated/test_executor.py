"""Gradients of many at once against those of one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.simulated.executor import (
    Gradient,
    GradientInput,
    GradientSource,
    mean_of,
    with_patches,
)
from tests.failing import fails
from tests.trainers.jobs import DENSE, digits_data, normalized_model

MakeSource = Callable[..., tuple[GradientSource, ModelFunction]]


@pytest.fixture(scope="module")
def make_source() -> Iterator[MakeSource]:
    sources = []

    def make(workload: Workload, most: int = 8) -> tuple[GradientSource, ModelFunction]:
        data = workload.data()
        function = ModelFunction(workload, data)
        sources.append(GradientSource(workload, data, function, most))
        return sources[-1], function

    yield make
    for source in sources:
        source.close()


def residual(keras: Any) -> Any:
    """Functional: a way round normalized convolutions, strides that divide no size, and pools."""
    inputs = keras.Input((8, 8, 1))
    first = keras.layers.Conv2D(4, (3, 2), strides=(2, 3), padding="same")(inputs)
    hidden = keras.layers.BatchNormalization(momentum=0.9)(first)
    hidden = keras.layers.ReLU()(hidden)
    hidden = keras.layers.Conv2D(4, 1, use_bias=False, kernel_regularizer="l2")(hidden)
    hidden = keras.layers.Add()([first, hidden])
    hidden = keras.layers.AveragePooling2D((2, 1))(keras.layers.MaxPooling2D((2, 1))(hidden))
    hidden = keras.layers.Conv2D(4, (1, 2), activation="tanh")(hidden)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(10, activation="softmax")(hidden))


def subclassed(keras: Any) -> Any:
    class Mine(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.flatten = keras.layers.Flatten()
            self.dense = keras.layers.Dense(10, activation="softmax")

        def call(self, inputs: Any, training: bool = False) -> Any:
            return self.dense(self.flatten(inputs))

    model = Mine()
    model(np.zeros((1, 8, 8, 1), np.float32))
    return model


def with_other_clones(keras: Any) -> Any:
    """A layer that does something else in each model: what is cloned computes another thing."""

    class Different(keras.layers.Layer):
        made = 0

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            Different.made += 1
            self._scale = float(Different.made)

        def call(self, inputs: Any) -> Any:
            return self._scale * inputs

    layers = [keras.layers.Flatten(), Different(), keras.layers.Dense(10, activation="softmax")]
    return keras.Sequential([keras.Input((8, 8, 1)), *layers])


def noisy_data() -> Data:
    import tensorflow as tf

    def noisy(inputs: Any, labels: Any, seed: Any) -> Any:
        return inputs + tf.random.stateless_normal(tf.shape(inputs), seed), labels

    return replace(digits_data(), transform=noisy)


def wanted_of(function: ModelFunction, count: int) -> list[GradientInput]:
    """Each with a batch, parameters and statistics of its own."""
    random = np.random.default_rng(7)
    return [
        GradientInput(
            3 * place,
            (0.2 * random.standard_normal(function.parameters.size)).astype(np.float32),
            (1 + random.random(function.statistics.size)).astype(np.float32),
        )
        for place in range(count)
    ]


def computed(source: GradientSource, wanted: list[GradientInput], seed: int) -> list[Gradient]:
    """All of them, as many in a call as the source takes."""
    parts = range(0, len(wanted), source.at_once)
    calls = [source.submit(wanted[start : start + source.at_once], seed) for start in parts]
    return [one for call in calls for one in call.result()]


def assert_same(found: list[Gradient], expected: list[Gradient]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        scale = np.abs(other.values).max()
        np.testing.assert_allclose(one.values, other.values, atol=1e-5 * scale)
        np.testing.assert_allclose(one.contribution, other.contribution, atol=1e-6)


@pytest.mark.parametrize("kind", ["residual", "noisy"])
def test_many_at_once_are_those_of_one_at_a_time(
    keras: Any, make_source: MakeSource, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """With convolutions, or a transform that has the seed of the batch."""
    caplog.set_level("INFO")
    workload = replace(DENSE, model=normalized_model, data=noisy_data)
    if kind == "residual":
        workload = replace(DENSE, model=lambda: residual(keras), batch_size=5)
    many, function = make_source(workload)
    single, _ = make_source(workload, most=1)
    assert (many.at_once, single.at_once) == (4, 1)
    # Not a multiple of 4: the last call is filled up.
    wanted = wanted_of(function, 6)
    expected = computed(single, wanted, 3)
    assert_same(computed(many, wanted, 3), expected)
    assert len({one.loss for one in expected}) == 6
    # Places do not matter, not in a single bit: a fork groups them in another way.
    together = computed(many, wanted[:4], 3)
    for order in ([3, 1, 0, 2], [2], [1, 1, 3]):
        found = computed(many, [wanted[k] for k in order], 3)
        for place, one in zip(order, found, strict=True):
            assert one.loss == together[place].loss
            np.testing.assert_array_equal(one.values, together[place].values)
            np.testing.assert_array_equal(one.contribution, together[place].contribution)
    others = computed(many, wanted[:4], 4)
    assert [one.loss for one in others] != [one.loss for one in together]
    # 11 batches at the same parameters: a full call, and one that is filled up.
    shared = [replace(wanted[0], worker_step=2 * place) for place in range(11)]
    mean = mean_of(computed(single, shared, 3))
    for source in (many, single):
        assert_same([source.submit_mean(shared, 3)()], [mean])
    again, found_mean = (many.submit_mean(shared, 3)() for _ in range(2))
    np.testing.assert_array_equal(again.values, found_mean.values)
    assert_same([many.submit_mean(shared[:1], 3)()], computed(single, shared[:1], 3))
    assert "gradients are computed one at a time" not in caplog.text


@pytest.mark.parametrize(
    ("model", "reason"),
    [(subclassed, "Sequential models"), (with_other_clones, "as with random layers")],
)
def test_what_cannot_be_joined_is_computed_one_at_a_time(
    keras: Any, make_source: MakeSource, caplog: pytest.LogCaptureFixture, model: Any, reason: str
) -> None:
    caplog.set_level("INFO")
    source, _ = make_source(replace(DENSE, model=lambda: model(keras)))
    assert source.at_once == 1
    assert reason in caplog.text


class TestPatches:
    @pytest.mark.parametrize("padding", ["same", "valid"])
    @pytest.mark.parametrize("strides", [1, 2, (3, 1)])
    @pytest.mark.parametrize("size", [1, 3, (2, 5)])
    def test_multiply_to_the_convolution(
        self, keras: Any, padding: str, strides: Any, size: Any
    ) -> None:
        model = keras.Sequential(
            [keras.Input((9, 7, 2)), keras.layers.Conv2D(3, size, strides, padding)]
        )
        patched = with_patches(model)
        patched.set_weights(model.get_weights())
        pictures = np.random.default_rng(1).standard_normal((2, 9, 7, 2)).astype(np.float32)
        assert type(patched.layers[0]) is not type(model.layers[0])
        np.testing.assert_allclose(patched(pictures), model(pictures), atol=1e-5)

    @pytest.mark.parametrize("padding", ["same", "valid"])
    @pytest.mark.parametrize("strides", [None, 1, (3, 1)])
    @pytest.mark.parametrize("size", [2, (2, 5)])
    def test_choose_the_maximum_and_who_has_its_gradient(
        self, keras: Any, padding: str, strides: Any, size: Any
    ) -> None:
        import tensorflow as tf

        layer = keras.layers.MaxPooling2D(size, strides, padding)
        model = keras.Sequential([keras.Input((9, 7, 2)), layer])
        patched = with_patches(model)
        assert type(patched.layers[0]) is not type(layer)
        # Whole numbers below zero: many are equal, and what is beyond the edge is no maximum.
        pictures = tf.constant(np.random.default_rng(1).integers(-4, 0, (2, 9, 7, 2)), tf.float32)
        found = []
        for one in (model, patched):
            with tf.GradientTape() as tape:
                tape.watch(pictures)
                output = one(pictures)
                weights = tf.reshape(tf.range(tf.size(output, tf.int64)), tf.shape(output))
                total = tf.reduce_sum(output * tf.cast(weights, tf.float32))
            found.append((output.numpy(), tape.gradient(total, pictures).numpy()))
        np.testing.assert_array_equal(found[1][0], found[0][0])
        np.testing.assert_array_equal(found[1][1], found[0][1])

    def test_leave_other_convolutions_as_they_are(self, keras: Any) -> None:
        model = keras.Sequential(
            [
                keras.Input((8, 8, 2)),
                keras.layers.Conv2D(2, 3, dilation_rate=2),
                keras.layers.Conv2D(2, 3, groups=2),
                keras.layers.SeparableConv2D(2, 2),
            ]
        )
        patched = with_patches(model)
        assert [type(layer) for layer in patched.layers] == [type(one) for one in model.layers]


def test_what_does_not_fit_together_is_one_line(keras: Any, make_source: MakeSource) -> None:
    with fails("workload-unsuitable", "do not fit together") as error:
        make_source(replace(DENSE, loss="mse"))
    assert "\n" not in str(error.value)
