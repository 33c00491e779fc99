"""Rows of embeddings on a parameter server, as chiefs load and read them."""

from __future__ import annotations

from contextlib import AbstractContextManager

from syncswitch.trainers.model.embeddings.shard import EmbeddingShard
from syncswitch.trainers.model.layout import Vector


class HeldEmbeddings:
    """Moves blocks of rows while workers push.

    Args:
        shard: Of a parameter server.
        changing: Is entered by whoever uses it.
    """

    def __init__(self, shard: EmbeddingShard, changing: AbstractContextManager[object]) -> None:
        self._shard = shard
        self._changing = changing

    def load_rows(self, table: int, part: int, start: int, values: Vector) -> None:
        """Overwrites rows, after the state was loaded; see `EmbeddingShard.load`."""
        with self._changing:
            self._shard.load(table, part, start, values)

    def read_rows(self, table: int, part: int, start: int, stop: int) -> Vector:
        """Rows at the last mark; see `EmbeddingShard.read`."""
        with self._changing:
            return self._shard.read(table, part, start, stop)

    def end_read(self) -> None:
        """Forgets the rows of the last mark."""
        with self._changing:
            self._shard.unmark()
