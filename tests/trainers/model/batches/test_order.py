from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pytest

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.sources.source import Array, Rows, Source
from syncswitch.trainers.model.batches.order import Order
from syncswitch.trainers.model.function import ModelFunction
from tests.trainers.jobs import CONSTANT


@dataclass
class Blocks(Source):
    """Examples that nobody reads."""

    sizes: Sequence[int]
    in_window: int = 1

    @property
    def examples(self) -> int:
        return sum(self.sizes)

    @property
    def blocks(self) -> Sequence[int]:
        return self.sizes

    @property
    def blocks_in_window(self) -> int:
        return self.in_window

    def read(self, numbers: Array) -> Rows:
        raise NotImplementedError


SOURCES = [
    Blocks([60]),
    Blocks([7, 0, 11, 1, 9, 13, 2], 2),
    Blocks([7, 0, 11, 1, 9, 13, 2], 7),
    Blocks([5] * 10, 3),
    Blocks([1]),
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("batch_size", [4, 100])
def test_each_epoch_holds_each_example_once(source: Blocks, batch_size: int) -> None:
    order, epochs, N = Order(source, batch_size), 3, source.examples
    steps = -(-epochs * N // batch_size)
    row = np.concatenate([order.numbers(step, 7) for step in range(steps)])
    for epoch in range(epochs):
        assert Counter(row[epoch * N : (epoch + 1) * N]) == Counter(range(N))
    # As a function of the step alone, by whomever, and whenever.
    again = Order(source, batch_size)
    for step in reversed(range(steps)):
        np.testing.assert_array_equal(again.numbers(step, 7), row[step * batch_size :][:batch_size])


def test_in_one_window_it_is_that_of_examples_in_memory() -> None:
    import tensorflow as tf

    numbers = np.arange(50, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)
    data = Data(numbers, numbers[:, :1], numbers[:1], numbers[:1, :1])
    function = ModelFunction(replace(CONSTANT, batch_size=12), data)
    arrays = tf.constant(data.train_inputs), tf.constant(data.train_labels)
    for source in (Blocks([50]), Blocks([20, 25, 5], 3), Blocks([20, 25, 5], 9)):
        order = Order(source, 12)
        for step in (0, 3, 4, 1000):
            inputs, *_ = function.batch(arrays, np.int64(step), np.int64(9))
            np.testing.assert_array_equal(inputs[:, 0], order.numbers(step, 9))


def test_a_window_mixes_its_blocks_and_no_others() -> None:
    source = Blocks([8] * 12, 3)
    order = Order(source, 8)
    for step in range(2 * 12):
        assert order.window(step, 5) == step // 3
        window = order.blocks_of(step // 3, 5)
        found = set(order.numbers(step, 5) // 8)
        assert found <= set(window), "of this window"
        assert len(found) > 1, "mixed"
    orders = [[order.blocks_of(epoch * 4 + n, seed) for n in range(4)] for epoch, seed in EPOCHS]
    assert all(sorted(chain(*one)) == list(range(12)) for one in orders)
    assert len({str(one) for one in orders}) == len(EPOCHS)


EPOCHS = [(0, 5), (1, 5), (0, 6)]
