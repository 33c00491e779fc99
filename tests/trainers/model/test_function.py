from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.model.function import ModelFunction, decay_of
from tests.trainers.jobs import CONSTANT, constant_data


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


class TestOfAKnownUpdate:
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
        ],
    )
    def test_it_is_the_factor_or_0(self, move: Callable[[Any], Any], decay: float) -> None:
        np.testing.assert_array_equal(decay_of(move, START), np.full(4, decay, np.float32))

    def test_each_value_has_its_own(self) -> None:
        factors = np.array([0.9, 1.0, 0.0, 0.99], np.float32)
        np.testing.assert_array_equal(decay_of(lambda s: factors * s + X, START), factors)

    def test_what_depends_on_others_has_that_of_its_own_value(self) -> None:
        """The second follows from the first, the last is an average of the first's square."""

        def move(s: Any) -> Any:
            first = np.float32(0.9) * s[0] + X[0]
            return np.array([first, 2 * first + 1, s[2], 0.5 * s[3] + first**2], np.float32)

        expected = np.array([0.9, 0.0, 1.0, 0.5], np.float32)
        np.testing.assert_array_equal(decay_of(move, START), expected)


def random_data() -> Data:
    return replace(
        constant_data(),
        train_inputs=np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32),
    )


def decay_of_layers(keras: Any, *layers: Any, **settings: Any) -> dict[str, float]:
    """Of each variable that moves; all its values have to have the same."""
    inputs = keras.Input((4,), **settings)
    outputs = inputs
    for layer in layers:
        outputs = layer(outputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(outputs))
    function = ModelFunction(CONSTANT, random_data(), model)
    named = function.statistics.name(function.statistics_decay)
    assert all(len(np.unique(values)) == 1 for values in named.values())
    return {name: float(values.flat[0]) for name, values in named.items()}


class TestOfALayer:
    @pytest.mark.parametrize("settings", [{}, {"batch_size": CONSTANT.batch_size}])
    def test_of_batch_normalization_it_is_the_momentum(
        self, keras: Any, settings: dict[str, int]
    ) -> None:
        layers = [keras.layers.BatchNormalization(momentum=0.99) for _ in range(3)]
        found = decay_of_layers(keras, *layers, **settings)
        assert list(found.values()) == [pytest.approx(0.99, rel=1e-7)] * 6

    def test_a_frozen_one_before_it_changes_nothing(self, keras: Any) -> None:
        frozen = keras.layers.BatchNormalization(trainable=False)
        found = decay_of_layers(keras, frozen, keras.layers.BatchNormalization(momentum=0.9))
        # Frozen, its scale and offset are statistics as well, as they are not trained.
        assert list(found.values()) == [pytest.approx(m) for m in [1.0] * 4 + [0.9] * 2]

    def test_of_batch_renormalization_the_variance_follows_from_the_deviation(
        self, keras: Any
    ) -> None:
        layer = keras.layers.BatchNormalization(momentum=0.9, renorm=True, renorm_momentum=0.8)
        found = decay_of_layers(keras, layer)
        by_name = {name.partition("-")[2]: m for name, m in found.items()}
        assert by_name == {
            "moving_mean": pytest.approx(0.9),
            "moving_variance": 0.0,
            "moving_stddev": pytest.approx(0.9),
            "renorm_mean": pytest.approx(0.8),
            "renorm_stddev": pytest.approx(0.8),
        }

    def test_of_a_power_iteration_it_is_0(self, keras: Any) -> None:
        layer = keras.layers.SpectralNormalization(keras.layers.Dense(4))
        assert list(decay_of_layers(keras, layer).values()) == [0.0]

    def test_of_a_model_without_any_there_is_none(self, keras: Any) -> None:
        assert decay_of_layers(keras, keras.layers.LayerNormalization()) == {}
