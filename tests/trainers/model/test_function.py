from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

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
        # A power iteration.
        (lambda of: [of.SpectralNormalization(of.Dense(4))], [0.0]),
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
