"""Rows of embeddings on all parameter servers, as their chief loads and reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.trainers.model.embeddings.file import EmbeddingForm
from syncswitch.trainers.model.embeddings.initial import block_rows
from syncswitch.trainers.model.embeddings.sharding import block_on, range_on, rows_on
from syncswitch.trainers.model.layout import EmbeddingBlock, EmbeddingSource, Vector


class EmbeddingServers:
    """Moves embeddings block by block, so that the chief never holds one.

    Args:
        servers: `HeldEmbeddings`, or what calls them in other processes.
        forms: Of the embeddings.
    """

    def __init__(self, servers: Sequence[Any], forms: Sequence[EmbeddingForm]) -> None:
        self._servers = servers
        self._forms = forms

    def load(self, source: EmbeddingSource) -> None:
        """Overwrites all rows; the rest of the state was loaded before."""
        count = len(self._servers)
        for table, part, start, values in source.blocks(skips_initial=True):
            for number, server in enumerate(self._servers):
                rows = np.ascontiguousarray(block_on(start, values, number, count))
                server.load_rows(table, part, rows_on(start, number, count), rows)

    def marked(self) -> EmbeddingSource:
        """All rows at the last mark, until `end_read`."""
        return _MarkedEmbeddings(self._servers, self._forms)

    def end_read(self) -> None:
        """Nobody reads rows of the last mark any more."""
        for server in self._servers:
            server.end_read()


class _MarkedEmbeddings(EmbeddingSource):
    def __init__(self, servers: Sequence[Any], forms: Sequence[EmbeddingForm]) -> None:
        self._servers = servers
        self._forms = forms

    @override
    def blocks(self, *, skips_initial: bool = False) -> Iterator[EmbeddingBlock]:
        for table, form in enumerate(self._forms):
            for part in range(len(form.members)):
                for start in range(0, form.rows, block_rows(form.width)):
                    stop = min(start + block_rows(form.width), form.rows)
                    yield EmbeddingBlock(table, part, start, self._read(table, part, start, stop))

    def _read(self, table: int, part: int, start: int, stop: int) -> Vector:
        count = len(self._servers)
        values = np.empty((stop - start, self._forms[table].width), np.float32)
        for number, server in enumerate(self._servers):
            rows = server.read_rows(table, part, *range_on(start, stop, number, count))
            block_on(start, values, number, count)[:] = rows
        return values
