"""One traced function, called by several threads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.model.tensorflow_api import concrete, for_threads, seeded, tf

THREADS = 2
# Of calls that share kernels, about one in a thousand comes out wrong, or crashes.
CALLS = 1500


@pytest.fixture(scope="module")
def gradient(keras: Any) -> Iterator[Any]:
    """Of a model with a sum that oneDNN joins to a convolution."""
    inputs = keras.Input((8, 8, 1))
    first = keras.layers.Conv2D(4, 3, padding="same")(inputs)
    outputs = keras.layers.Add()([first, keras.layers.Conv2D(4, 3, padding="same")(first)])
    model = keras.Model(inputs, outputs)

    def loss_and_gradients(batch: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(batch, training=True) ** 2)
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    # What is returned knows the variables by weak references alone: this frame keeps the model.
    yield concrete(loss_and_gradients, tf.TensorSpec((5, 8, 8, 1)))  # noqa: PT022


def test_calls_do_not_mix_their_numbers_up(gradient: Any) -> None:
    random = np.random.default_rng(7)
    batches = [tf.constant(random.random((5, 8, 8, 1)), tf.float32) for _ in range(6)]
    expected = [[one.numpy() for one in gradient(batch)] for batch in batches]
    called = for_threads(gradient, THREADS)

    def call(number: int) -> None:
        which = number % len(batches)
        for one, other in zip(called(batches[which]), expected[which], strict=True):
            np.testing.assert_array_equal(one.numpy(), other)

    with ThreadPoolExecutor(2 * THREADS) as threads:
        list(threads.map(call, range(CALLS)))


def drawn_of_keras(keras: Any) -> list[Any]:
    """By everybody who draws while a model is built."""
    kernel = keras.layers.Dense(3)
    kernel.build((None, 2))
    from_generator = keras.random.normal((2,))
    return [kernel.kernel.numpy(), from_generator.numpy(), np.random.random(), random.random()]


def drawn_of_tensorflow() -> list[Any]:
    return [tf.random.normal([2]).numpy(), tf.random.uniform([2], seed=5).numpy()]


def test_a_seed_fixes_all_that_is_drawn_and_lasts(keras: Any) -> None:
    for draw in (lambda: drawn_of_keras(keras), drawn_of_tensorflow):

        def drawn(seed: int, draw: Any = draw) -> list[Any]:
            with seeded(seed):
                return draw()  # type: ignore[no-any-return]

        keras.utils.set_random_seed(3)
        expected = draw()
        for _ in range(2):
            for one, other in zip(drawn(3), expected, strict=True):
                np.testing.assert_array_equal(one, other)
        for one, other in zip(drawn(4), expected, strict=True):
            assert not np.array_equal(one, other)
    with seeded(6):
        pass
    found = drawn_of_tensorflow()
    tf.random.set_seed(6)
    for one, other in zip(found, drawn_of_tensorflow(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_kernels_stay_unless_somebody_draws_of_tensorflow(keras: Any) -> None:
    """A kernel that has been made anew begins its random numbers anew."""
    draw = concrete(lambda: tf.random.uniform([]))
    tf.random.set_seed(1)
    first, second = float(draw()), float(draw())
    with seeded(1):
        drawn_of_keras(keras)
    third = float(draw())
    assert third not in (first, second)
    with seeded(1):
        drawn_of_tensorflow()
    assert [float(draw()), float(draw()), float(draw())] == [first, second, third]
