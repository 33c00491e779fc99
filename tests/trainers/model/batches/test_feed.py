from __future__ import annotations

import threading
import time
from collections import Counter

import numpy as np
import psutil
import pytest
from typing_extensions import override

from syncswitch.trainers.job.sources.pipelines import PipelinePieces
from syncswitch.trainers.job.sources.source import Array, ArraySource, Rows, Source
from syncswitch.trainers.model.batches.feed import ReadFeed, feed_of, in_order, likely_steps
from syncswitch.trainers.model.batches.order import Order

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
    deadline = time.monotonic() + 10
    while not source.threads_of(following) and time.monotonic() < deadline:
        time.sleep(0.01)
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


def test_likely_are_the_distances_of_late() -> None:
    assert likely_steps(10, [4, 5, 4], 1) == [14, 15]
    assert likely_steps(10, [1, 1, 1], 3) == [11, 12, 13]


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


BLOCKS, EXAMPLES, WIDTH = 48, 128, 1 << 13
BLOCK_BYTES = EXAMPLES * WIDTH * 4


class _Numbers(PipelinePieces):
    @override
    def _read_piece(self, piece: int) -> Rows:
        return (np.full((EXAMPLES, WIDTH), piece, np.float32),)


def test_an_epoch_needs_the_memory_of_a_few_blocks() -> None:
    feed = ReadFeed(_Numbers(BLOCKS, print, EXAMPLES, blocks_in_window=2), 32)
    process, used = psutil.Process(), []
    for step in range(BLOCKS * EXAMPLES // 32):
        feed.rows(step, 1)
        if step % 8 == 0:
            used.append(process.memory_info().rss)
    feed.close()
    # Two windows, and one more block under way.
    assert max(used) - used[0] < 8 * BLOCK_BYTES < BLOCKS * BLOCK_BYTES / 3
