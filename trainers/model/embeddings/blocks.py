"""Embeddings moved block by block, so that only parameter servers ever hold one.

A block is some neighbouring rows. It comes from an initializer, a file or the parameter servers.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import IO, Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import UserError, one_line
from syncswitch.trainers.model.embeddings.rules import RowRule
from syncswitch.trainers.model.embeddings.shard import (
    EmbeddingShard,
    ShardPlan,
    block_on,
    rows_on,
)
from syncswitch.trainers.model.layout import EmbeddingForm, EmbeddingSource, ModelState, Vector

BLOCK_VALUES = 1 << 18
"""About this many values are made, moved and written at once. Initial rows depend on it."""


def _cuts(form: EmbeddingForm) -> Iterator[tuple[int, int]]:
    """Yields the first row of each block, and the one after its last."""
    step = max(1, BLOCK_VALUES // form.width)
    for start in range(0, form.rows, step):
        yield start, min(start + step, form.rows)


class InitialEmbeddings(EmbeddingSource):
    """Rows as the initializers of their layers make them; they depend on the run's seed alone."""

    is_initial = True

    def __init__(
        self, forms: Sequence[EmbeddingForm], initializers: Sequence[Any], rule: RowRule, seed: int
    ) -> None:
        super().__init__(forms)
        self._initializers = initializers
        self._rule = rule
        self._seed = seed

    @override
    def part(self, table: int, part: int) -> Iterator[Vector]:
        form, initializer = self.forms[table], self._initializers[table]
        config = initializer.get_config()
        for start, stop in _cuts(form):
            shape = stop - start, form.width
            if part:
                yield np.full(shape, self._rule.initial, np.float32)
                continue
            if "seed" in config:
                seed = zlib.crc32(repr((self._seed, table, start)).encode())
                initializer = type(initializer)(**{**config, "seed": seed})
            yield np.asarray(initializer(shape, "float32"))


def write_embeddings(file: IO[bytes], source: EmbeddingSource) -> None:
    """Adds embeddings to an npz file."""
    with ZipFile(file, "a", ZIP_STORED) as archive:
        for (table, part), blocks in groupby(source.blocks(), lambda one: (one.table, one.part)):
            form = source.forms[table]
            with archive.open(f"{form.members[part]}.npy", "w", force_zip64=True) as member:
                shape = (form.rows, form.width)
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                for block in blocks:
                    member.write(np.ascontiguousarray(block.values).data.cast("B"))


class StoredEmbeddings(EmbeddingSource):
    """Embeddings of an open npz file, readable even after it was removed or replaced."""

    def __init__(self, file: IO[bytes], forms: Sequence[EmbeddingForm]) -> None:
        super().__init__(forms)
        self._file = file

    @override
    def part(self, table: int, part: int) -> Iterator[Vector]:
        form = self.forms[table]
        # Opened again: others may read at the same time, each at a place of its own.
        with (
            ZipFile(f"/proc/self/fd/{self._file.fileno()}") as archive,
            archive.open(f"{form.members[part]}.npy") as member,
        ):
            np.lib.format.read_magic(member)
            shape, _, kind = np.lib.format.read_array_header_1_0(member)
            if shape != (form.rows, form.width) or kind != np.float32:
                raise ValueError(f"{form.name} has shape {shape}, not {(form.rows, form.width)}")
            for start, stop in _cuts(form):
                content: Any = member.read(4 * (stop - start) * form.width)
                yield np.frombuffer(content, np.float32).reshape(-1, form.width)


class NoRoomForEmbeddingsError(UserError):
    """A copy of embeddings cannot be written."""


def kept_embeddings(source: EmbeddingSource) -> StoredEmbeddings:
    """Copies embeddings that change to the folder for temporary files, if there is room."""
    try:
        file = tempfile.TemporaryFile(prefix="syncswitch-embeddings-")  # noqa: SIM115 (it stays)
        write_embeddings(file, source)
        file.flush()
    except OSError as error:
        raise NoRoomForEmbeddingsError(
            f"a copy of the embeddings cannot be written to {tempfile.gettempdir()}:"
            f" {error.strerror or one_line(error)}; make room there, or name another folder by the"
            " variable TMPDIR"
        ) from error
    return StoredEmbeddings(file, source.forms)


class EmbeddingServers(EmbeddingSource):
    """The embeddings on all parameter servers; read as a source they are those at the last mark.

    A server is an `EmbeddingShard`, or a proxy of one in another process.
    """

    def __init__(self, servers: Sequence[Any], forms: Sequence[EmbeddingForm]) -> None:
        super().__init__(forms)
        self._servers = servers

    def load(self, source: EmbeddingSource) -> None:
        """Overwrites all rows; the rest of the state has to be loaded before."""
        count = len(self._servers)
        for table, part, start, values in source.blocks(skips_initial=True):
            for number, server in enumerate(self._servers):
                rows = np.ascontiguousarray(block_on(start, values, number, count))
                server.load_rows(table, part, rows_on(start, number, count), rows)

    @override
    def part(self, table: int, part: int) -> Iterator[Vector]:
        count = len(self._servers)
        for start, stop in _cuts(self.forms[table]):
            values = np.empty((stop - start, self.forms[table].width), np.float32)
            for number, server in enumerate(self._servers):
                own = rows_on(start, number, count), rows_on(stop, number, count)
                block_on(start, values, number, count)[:] = server.read_rows(table, part, *own)
            yield values

    def end_read(self) -> None:
        """Lets the servers forget the rows of the last mark."""
        for server in self._servers:
            server.end_read()


class LocalEmbeddings:
    """Embeddings in this process that all workers share, in one shard; for one thread."""

    def __init__(self, plan: ShardPlan, forms: Sequence[EmbeddingForm]) -> None:
        self.shard = EmbeddingShard(plan)
        self._servers = EmbeddingServers([self.shard], forms)

    def load(self, state: ModelState) -> ModelState:
        """Takes over the embeddings of a state; returns the rest of it."""
        if state.embeddings is None:
            return state
        self.shard.reset(state.updates)
        self._servers.load(state.embeddings)
        return replace(state, embeddings=None)

    @contextmanager
    def with_embeddings(self, state: ModelState) -> Iterator[ModelState]:
        """Yields the state with the present embeddings, which can be read meanwhile."""
        if not self._servers.forms:
            yield state
            return
        self.shard.mark()
        try:
            yield replace(state, embeddings=self._servers)
        finally:
            self._servers.end_read()

    def kept(self, state: ModelState) -> ModelState:
        """Returns the state with a copy of the embeddings."""
        with self.with_embeddings(state) as whole:
            if whole.embeddings is None:
                return state
            return replace(state, embeddings=kept_embeddings(whole.embeddings))
