from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.sources import Array, ArraySource, Rows, Source
from syncswitch.trainers.model.feed import Order, ReadFeed, feed_of, in_order
from syncswitch.trainers.model.function import ModelFunction
from tests.processes import until
from tests.trainers.jobs import CONSTANT

B, SEED = 4, 3


class Numbers(Source):
    """Examples are their numbers; notes what is read, and by which thread."""

    examples = 1000

    def __init__(self) -> None:
        self.read_by: list[tuple[tuple[int, ...], str]] = []

    def read(self, numbers: Array) -> Rows:
        self.read_by.append((tuple(map(int, numbers)), threading.current_thread().name))
        return (numbers,)

    def threads_of(self, numbers: Array) -> list[str]:
        return [name for read, name in self.read_by if read == tuple(numbers)]


@pytest.mark.parametrize("askers", [1, 3])
@pytest.mark.parametrize("steps", [[0, 1, 2, 3, 4], [2, 7, 12, 17, 22], [5, 4, 3, 90, 5]])
def test_it_gives_the_batch_that_is_asked_for(askers: int, steps: list[int]) -> None:
    source = Numbers()
    feed, order = ReadFeed(source, B, askers), Order(source, B)
    for seed in (SEED, 8):
        for step in steps:
            (found,) = feed.rows(step, seed)
            np.testing.assert_array_equal(found, order.numbers(step, seed))
    feed.close()


@pytest.mark.parametrize(("askers", "stride"), [(1, 1), (1, 4), (3, 1)])
def test_what_will_be_asked_for_is_read_before(askers: int, stride: int) -> None:
    source = Numbers()
    feed, order = ReadFeed(source, B, askers), Order(source, B)
    for step in range(0, 10 * stride, stride):
        feed.rows(step, SEED)
    following = order.numbers(10 * stride, SEED)
    until(lambda: source.threads_of(following))
    assert [name[:6] for name in source.threads_of(following)] == ["reader"]
    feed.rows(10 * stride, SEED)
    assert len(source.threads_of(following)) == 1, "and once"
    feed.close()


def test_it_keeps_few_batches_that_never_are_asked_for() -> None:
    feed = ReadFeed(Numbers(), B)
    for step in np.random.default_rng(0).integers(0, 10_000, 200):
        feed.rows(int(step), SEED)
    assert len(feed._ahead) <= 8
    feed.close()


def test_examples_in_memory_are_given_as_they_are() -> None:
    rows = np.arange(6), np.arange(6.0)
    feed = feed_of(ArraySource(rows), B)
    for found, given in zip(feed.rows(77, 1), rows, strict=True):
        np.testing.assert_array_equal(found, given)


@pytest.mark.parametrize("size", [1, 7, 1000, 5000])
def test_all_examples_come_in_order(size: int) -> None:
    source = Numbers()
    for one in (source, ArraySource((np.arange(1000),))):
        batches = [found.numpy() for (found,) in in_order(one, size)]
        np.testing.assert_array_equal(np.concatenate(batches), np.arange(1000))
        assert Counter(map(len, batches[:-1])) == ({size: len(batches) - 1} if size < 1000 else {})


class Blocks(Source):
    """Examples that nobody reads."""

    blocks: Sequence[int] = ()
    blocks_in_window = 1

    def __init__(self, sizes: Sequence[int], in_window: int = 1) -> None:
        self.blocks, self.blocks_in_window = sizes, in_window

    @property
    def examples(self) -> int:
        return sum(self.blocks)

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
