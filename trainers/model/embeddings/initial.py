"""The rows with which embeddings begin, without ever having all of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.trainers.job.embeddings import EmbeddingTable
from syncswitch.trainers.model.embeddings.rules import RowRule
from syncswitch.trainers.model.layout import EmbeddingBlock, EmbeddingSource, Vector

BLOCK_VALUES = 1 << 18
"""About so many values are made, moved and written at once. Initial rows depend on it."""


def block_rows(width: int) -> int:
    """Rows of a block."""
    return max(1, BLOCK_VALUES // width)


class InitialEmbeddings(EmbeddingSource):
    """Rows as their layers' initializers make them, block by block, each with a seed of its own.

    So they depend on nothing but the seed of the run.

    Args:
        embeddings: Which.
        initializers: Of their layers.
        rule: The optimizer.
        seed: Of the run.
    """

    def __init__(
        self,
        embeddings: Sequence[EmbeddingTable],
        initializers: Sequence[Any],
        rule: RowRule,
        seed: int,
    ) -> None:
        self._embeddings = embeddings
        self._initializers = initializers
        self._rule = rule
        self._seed = seed

    @override
    def blocks(self, *, skips_initial: bool = False) -> Iterator[EmbeddingBlock]:
        parts = 1 if skips_initial else 1 + len(self._rule.slots)
        for number, table in enumerate(self._embeddings):
            for part in range(parts):
                for start in range(0, table.rows, block_rows(table.width)):
                    rows = min(block_rows(table.width), table.rows - start)
                    yield EmbeddingBlock(number, part, start, self._made(number, part, start, rows))

    def _made(self, number: int, part: int, start: int, rows: int) -> Vector:
        table = self._embeddings[number]
        if part:
            return np.full((rows, table.width), self._rule.initial, np.float32)
        initializer = self._initializers[number]
        config = initializer.get_config()
        if "seed" in config:
            seed = zlib.crc32(repr((self._seed, number, start)).encode())
            initializer = type(initializer)(**{**config, "seed": seed})
        made: Vector = np.asarray(initializer((rows, table.width), "float32"))
        return made
