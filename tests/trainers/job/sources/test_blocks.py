from __future__ import annotations

import threading
from copy import copy

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.pipelines import BlockSource
from syncswitch.trainers.job.sources.source import Rows


class Counted(BlockSource):
    """Examples are their numbers; notes which blocks are read."""

    def __init__(self, *sizes: int, in_window: int = 1) -> None:
        super().__init__(sizes, in_window)
        self.asked: list[int] = []
        self.extra = 0

    def _read_block(self, block: int) -> Rows:
        self.asked.append(block)
        first = sum(self._sizes[:block])
        numbers = np.arange(first, first + self._sizes[block] + self.extra)
        return numbers, np.stack([numbers, -numbers], -1)


def test_examples_are_those_that_were_asked_for() -> None:
    source = Counted(3, 0, 2, 4)
    wanted = np.array([8, 0, 4, 3, 8, 2])
    for one in (source, copy(source)):
        numbers, pairs = one.read(wanted)
        np.testing.assert_array_equal(numbers, wanted)
        np.testing.assert_array_equal(pairs, np.stack([wanted, -wanted], -1))
    assert source.examples == 9


def test_two_windows_are_kept() -> None:
    source = Counted(*[2] * 9, in_window=2)
    for number in (0, 2, 4, 6, 1, 3, 5, 7):
        source.read(np.array([number]))
    assert source.asked == [0, 1, 2, 3]
    source.read(np.array([8]))
    source.read(np.array([7, 0]))
    assert source.asked == [0, 1, 2, 3, 4, 0]


def test_what_is_prepared_is_read_once_by_whoever_asks() -> None:
    source = Counted(4, 4, in_window=2)
    source.prepare([1])
    threads = [threading.Thread(target=source.read, args=(np.array([5, 6]),)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert source.asked == [1]


def test_a_block_that_is_not_what_it_was_is_refused_until_it_is() -> None:
    source = Counted(4)
    source.extra = 1
    with pytest.raises(WorkloadError, match="block 0 had 4 examples, and has 5 now"):
        source.read(np.array([1]))
    source.extra = 0
    assert source.read(np.array([1]))[0] == [1]
