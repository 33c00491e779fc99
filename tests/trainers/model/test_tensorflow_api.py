"""One traced function, called by several threads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.model.tensorflow_api import concrete, for_threads, tf

THREADS = 2
# Of calls that share kernels, about one in a thousand comes out wrong, or crashes.
CALLS = 1500


@pytest.fixture(scope="module")
def gradient(keras: Any) -> Any:
    """Of a model with a sum that oneDNN joins to a convolution."""
    inputs = keras.Input((8, 8, 1))
    first = keras.layers.Conv2D(4, 3, padding="same")(inputs)
    outputs = keras.layers.Add()([first, keras.layers.Conv2D(4, 3, padding="same")(first)])
    model = keras.Model(inputs, outputs)

    def loss_and_gradients(batch: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(batch, training=True) ** 2)
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    return concrete(loss_and_gradients, tf.TensorSpec((5, 8, 8, 1)))


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


def test_so_many_threads_at_once_and_no_more() -> None:
    lock, inside, most = threading.Lock(), 0, 0
    both = threading.Barrier(THREADS, timeout=60)

    def meet(value: Any) -> Any:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        both.wait()
        time.sleep(0.01)
        with lock:
            inside -= 1
        return value

    function = concrete(lambda x: tf.numpy_function(meet, [x], tf.float32), tf.TensorSpec([]))
    called = for_threads(function, THREADS)
    with ThreadPoolExecutor(3 * THREADS) as threads:
        found = [float(one) for one in threads.map(called, map(tf.constant, map(float, range(6))))]
    assert found == [0, 1, 2, 3, 4, 5]
    assert most == THREADS
