"""Sources that can only be read in blocks, of which those in use are kept in memory."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.source import Array, Rows, Source

_PASSING = ("_lock", "_held", "_reader")


class BlockSource(Source):
    """Reads blocks as a whole; keeps two windows of them: the one in use, and the next one.

    Args:
        sizes: Examples of each block.
        blocks_in_window: See `Source.blocks_in_window`.
    """

    def __init__(self, sizes: Sequence[int], blocks_in_window: int) -> None:
        if blocks_in_window < 1:
            raise WorkloadError(f"data: blocks_in_window is {blocks_in_window}; give 1 or more")
        self._sizes = tuple(sizes)
        self._ends = np.cumsum(self._sizes)
        self._in_window = min(blocks_in_window, len(self._sizes))
        self._begin()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _PASSING}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    @property
    @override
    def examples(self) -> int:
        return int(self._ends[-1])

    @property
    @override
    def blocks(self) -> Sequence[int]:
        return self._sizes

    @property
    @override
    def blocks_in_window(self) -> int:
        return self._in_window

    @override
    def read(self, numbers: Array) -> Rows:
        numbers = np.asarray(numbers)
        blocks = np.searchsorted(self._ends, numbers, "right")
        columns: list[Array] = []
        for block in np.unique(blocks):
            places = np.flatnonzero(blocks == block)
            held = self._requested(int(block)).result()
            first = int(self._ends[block]) - self._sizes[block]
            if not columns:
                columns = [np.empty((len(numbers), *one.shape[1:]), one.dtype) for one in held]
            for column, one in zip(columns, held, strict=True):
                column[places] = one[numbers[places] - first]
        return tuple(columns)

    @override
    def prepare(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._requested(block)

    @abstractmethod
    def _read_block(self, block: int) -> Rows:
        """Reads a whole block."""

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[int, Future[Rows]] = OrderedDict()
        self._reader = ThreadPoolExecutor(1, "block-reader")

    def _requested(self, block: int) -> Future[Rows]:
        """A block that is there or under way; forgets those that were wanted longest ago."""
        with self._lock:
            found = self._held.get(block)
            if found is None or (found.done() and found.exception() is not None):
                found = self._held[block] = self._reader.submit(self._checked, block)
            self._held.move_to_end(block)
            while len(self._held) > 2 * self._in_window:
                self._held.popitem(last=False)
        return found

    def _checked(self, block: int) -> Rows:
        rows = self._read_block(block)
        for one in rows:
            if len(one) != self._sizes[block]:
                raise WorkloadError(
                    f"data: block {block} had {self._sizes[block]:,} examples, and has"
                    f" {len(one):,} now; it has to be the same whenever it is read"
                )
        return rows
