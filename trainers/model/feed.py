"""The examples of each batch, which follow from seed and worker-step alone, held or read ahead."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.trainers.job.sources import Array, ArraySource, Rows, Source
from syncswitch.trainers.model.tensorflow_api import tf

_ROUNDS = 4
# Stands for a window's number in the seed for the order of all blocks.
_OF_BLOCKS = -1


def shuffled(places: Any, seeds: Any, last: Any) -> Any:
    """Maps places [B] to those in orders up to `last` that are shuffled by seeds [B, 3]."""
    # The public index_shuffle pads a batch of seeds along the wrong axis.
    return tf.raw_ops.RandomIndexShuffle(index=places, seed=seeds, max_index=last, rounds=_ROUNDS)


class Order:
    """The order of the training examples of a source: an endless row of epochs.

    Each epoch shuffles the blocks and cuts them into windows of `Source.blocks_in_window`; the
    examples are shuffled within each window. A single window has the order of examples in memory.
    """

    def __init__(self, source: Source, batch_size: int) -> None:
        self._batch_size = batch_size
        self._sizes = np.array(source.blocks, np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._examples = source.examples
        self._in_window = source.blocks_in_window
        self.windows = -(-len(self._sizes) // self._in_window)
        self._epoch = lru_cache(4)(self._new_epoch)

    def numbers(self, worker_step: int, seed: int) -> Array:
        """Returns the numbers of the examples of a batch, shape [B]."""
        places = worker_step * self._batch_size + np.arange(self._batch_size)
        epochs, within = np.divmod(places, self._examples)
        # Places ascend, and with them the epochs.
        return np.concatenate(
            [self._numbers_of(within[epochs == one], int(one), seed) for one in np.unique(epochs)]
        )

    def window(self, worker_step: int, seed: int) -> int:
        """Returns the number, through all epochs, of the window with a batch's first example."""
        epoch, place = divmod(worker_step * self._batch_size, self._examples)
        position = np.searchsorted(self._epoch(epoch, seed)[1], place, "right")
        return epoch * self.windows + int(position) // self._in_window

    def blocks_of(self, window: int, seed: int) -> list[int]:
        """Returns the blocks of a window, see `window`."""
        epoch, number = divmod(window, self.windows)
        start = number * self._in_window
        return list(map(int, self._epoch(epoch, seed)[0][start : start + self._in_window]))

    def _numbers_of(self, places: Array, epoch: int, seed: int) -> Array:
        order, ends = self._epoch(epoch, seed)
        windows = np.searchsorted(ends, places, "right") // self._in_window
        lasts = np.minimum((windows + 1) * self._in_window, len(order)) - 1
        firsts = windows * self._in_window
        starts = np.where(firsts > 0, ends[firsts - 1], 0)
        seeds = np.stack([np.full_like(places, seed), np.full_like(places, epoch), windows], -1)
        sizes = ends[lasts] - starts
        mixed = starts + _shuffled(places - starts, seeds, sizes - 1)
        positions = np.searchsorted(ends, mixed, "right")
        blocks = order[positions]
        numbers: Array = self._starts[blocks] + mixed - ends[positions] + self._sizes[blocks]
        return numbers

    def _new_epoch(self, epoch: int, seed: int) -> tuple[Array, Array]:
        """Returns the order of the blocks in an epoch, and the examples up to each one's end."""
        blocks = np.arange(len(self._sizes))
        if self.windows > 1:
            seeds = np.tile(np.array([seed, epoch, _OF_BLOCKS]), (len(blocks), 1))
            blocks = _shuffled(blocks, seeds, np.full_like(blocks, len(blocks) - 1))
        return blocks, np.cumsum(self._sizes[blocks])


def _shuffled(places: Array, seeds: Array, last: Array) -> Array:
    with tf.device("/CPU:0"):
        return np.asarray(shuffled(*map(tf.constant, (places, seeds, last))))


Tensors = tuple[Any, ...]
_STRIDES = 3
_READERS = 2


class Feed(ABC):
    """Gives the traced steps their examples; for any thread."""

    @abstractmethod
    def rows(self, worker_step: int, seed: int) -> Tensors:
        """Returns the examples from which `ModelFunction.batch` makes a worker-step's batch."""

    def close(self) -> None:  # noqa: B027  (there may be nothing to stop)
        """Stops reading."""


class HeldFeed(Feed):
    """All examples, in memory; a step picks its own."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = tensors(rows)

    @override
    def rows(self, worker_step: int, seed: int) -> Tensors:
        return self._rows


class ReadFeed(Feed):
    """The examples of a batch, read ahead of the step if it can guess which.

    The steps of several workers (`askers`) that share it follow each other. A single one is
    expected to advance by the same distances as before.
    """

    def __init__(self, source: Source, batch_size: int, askers: int = 1) -> None:
        self._source = source
        self._order = Order(source, batch_size)
        self._askers = askers
        self._reader = ThreadPoolExecutor(_READERS, "reader")
        self._lock = threading.Lock()
        self._ahead: dict[tuple[int, int], Future[Tensors]] = {}
        self._strides: deque[int] = deque([1], _STRIDES)
        self._last = (0, -1)
        examples = source.examples // self._order.windows
        self._lead = max(1, examples // 2 // batch_size)
        self._prepared = (0, -1)

    @override
    def rows(self, worker_step: int, seed: int) -> Tensors:
        with self._lock:
            expected = self._ahead.pop((seed, worker_step), None)
            self._prepare_window(worker_step, seed)
            self._read_ahead(worker_step, seed)
        # An unexpected batch need not queue up behind expected ones.
        return self._read(worker_step, seed) if expected is None else expected.result()

    @override
    def close(self) -> None:
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _read(self, worker_step: int, seed: int) -> Tensors:
        return tensors(self._source.read(self._order.numbers(worker_step, seed)))

    def _read_ahead(self, worker_step: int, seed: int) -> None:
        last_seed, last = self._last
        self._last = seed, worker_step
        if seed == last_seed and worker_step > last:
            self._strides.append(worker_step - last)
        # The next ones, or those at the latest distances.
        ahead = range(1, self._askers + 1) if self._askers > 1 else sorted({*self._strides})
        steps = [worker_step + distance for distance in ahead]
        for step in steps:
            if (seed, step) not in self._ahead:
                self._ahead[seed, step] = self._reader.submit(self._read, step, seed)
        # Expected batches that were never wanted.
        while len(self._ahead) > 2 * len(steps) + self._askers:
            self._ahead.pop(next(iter(self._ahead))).cancel()

    def _prepare_window(self, worker_step: int, seed: int) -> None:
        """Has a window's blocks read once workers are past the middle of the one before."""
        window = self._order.window(worker_step + self._lead, seed)
        last_seed, last = self._prepared
        if seed != last_seed or not last - 1 <= window <= last:
            self._prepared = seed, window
            self._source.prepare(self._order.blocks_of(window, seed))


def feed_of(source: Source, batch_size: int, askers: int = 1) -> Feed:
    """Makes the feed that fits a source; see `ReadFeed`."""
    if isinstance(source, ArraySource):
        return HeldFeed(source.rows)
    return ReadFeed(source, batch_size, askers)


def in_order(source: Source, size: int) -> Iterator[Tensors]:
    """Yields all examples in batches of this size, one of which is read ahead."""
    if isinstance(source, ArraySource):
        for start in range(0, source.examples, size):
            yield tensors([one[start : start + size] for one in source.rows])
        return

    def read(start: int) -> Tensors:
        return tensors(source.read(np.arange(start, min(start + size, source.examples))))

    with ThreadPoolExecutor(1, "reader") as reader:
        ahead = reader.submit(read, 0)
        for start in range(size, source.examples + size, size):
            batch = ahead.result()
            if start < source.examples:
                ahead = reader.submit(read, start)
            yield batch


def tensors(rows: Rows | Sequence[Any]) -> Tensors:
    """Makes tensors of examples, on the CPU even if there is a GPU, which gets batches alone."""
    with tf.device("/CPU:0"):
        return tuple(map(tf.convert_to_tensor, rows))
