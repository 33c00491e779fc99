"""The examples of each batch, which follow from the seed and the worker-step alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from syncswitch.trainers.job.sources.source import Array, Source
from syncswitch.trainers.model.tensorflow_api import tf

_ROUNDS = 4
# Stands for a window's number in the seed for the order of all blocks.
_OF_BLOCKS = -1


def shuffled(places: Any, seeds: Any, last: Any) -> Any:
    """Maps places [B] to those in orders up to `last` that are shuffled by seeds [B, 3]."""
    # The public index_shuffle pads a batch of seeds along the wrong axis.
    return tf.raw_ops.RandomIndexShuffle(index=places, seed=seeds, max_index=last, rounds=_ROUNDS)


@dataclass(frozen=True)
class _Epoch:
    """The order of the blocks in one epoch, and the number of examples up to each one's end."""

    blocks: Array
    ends: Array


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
        found = np.empty(self._batch_size, np.int64)
        epochs, within = np.divmod(places, self._examples)
        for epoch in np.unique(epochs):
            is_here = epochs == epoch
            found[is_here] = self._numbers_of(within[is_here], int(epoch), seed)
        return found

    def window(self, worker_step: int, seed: int) -> int:
        """Returns the number, through all epochs, of the window with a batch's first example."""
        epoch, place = divmod(worker_step * self._batch_size, self._examples)
        position = np.searchsorted(self._epoch(epoch, seed).ends, place, "right")
        return epoch * self.windows + int(position) // self._in_window

    def blocks_of(self, window: int, seed: int) -> list[int]:
        """Returns the blocks of a window, see `window`."""
        epoch, number = divmod(window, self.windows)
        start = number * self._in_window
        blocks = self._epoch(epoch, seed).blocks[start : start + self._in_window]
        found: list[int] = blocks.tolist()
        return found

    def _numbers_of(self, places: Array, epoch: int, seed: int) -> Array:
        layout = self._epoch(epoch, seed)
        windows = np.searchsorted(layout.ends, places, "right") // self._in_window
        lasts = np.minimum((windows + 1) * self._in_window, len(layout.blocks)) - 1
        firsts = windows * self._in_window
        starts = np.where(firsts > 0, layout.ends[firsts - 1], 0)
        seeds = np.stack([np.full_like(places, seed), np.full_like(places, epoch), windows], -1)
        sizes = layout.ends[lasts] - starts
        mixed = starts + _shuffled(places - starts, seeds, sizes - 1)
        positions = np.searchsorted(layout.ends, mixed, "right")
        blocks = layout.blocks[positions]
        numbers: Array = self._starts[blocks] + mixed - layout.ends[positions] + self._sizes[blocks]
        return numbers

    def _new_epoch(self, epoch: int, seed: int) -> _Epoch:
        blocks = np.arange(len(self._sizes))
        if self.windows > 1:
            seeds = np.tile(np.array([seed, epoch, _OF_BLOCKS]), (len(blocks), 1))
            blocks = _shuffled(blocks, seeds, np.full_like(blocks, len(blocks) - 1))
        return _Epoch(blocks, np.cumsum(self._sizes[blocks]))


def _shuffled(places: Array, seeds: Array, last: Array) -> Array:
    with tf.device("/CPU:0"):
        found: Array = shuffled(*map(tf.constant, (places, seeds, last))).numpy()
    return found
