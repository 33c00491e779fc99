"""Embeddings moved block by block, so that nobody but parameter servers ever holds one.

A block is some neighbouring rows. Its source is an initializer, a file or the parameter servers.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import UserError, one_line
from syncswitch.trainers.job.embeddings import EmbeddingTable
from syncswitch.trainers.model.embeddings.rules import RowRule
from syncswitch.trainers.model.embeddings.shard import (
    EmbeddingShard,
    ShardPlan,
    block_on,
    range_on,
    rows_on,
)
from syncswitch.trainers.model.layout import EmbeddingBlock, EmbeddingSource, ModelState, Vector

BLOCK_VALUES = 1 << 18
"""About so many values are made, moved and written at once. Initial rows depend on it."""

LIST = "embeddings"
"""Array of an npz file that says which others are embeddings."""


def _cuts(rows: int, width: int) -> Iterator[tuple[int, int]]:
    """First row of each block, and one after its last."""
    step = max(1, BLOCK_VALUES // width)
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


class InitialEmbeddings(EmbeddingSource):
    """Rows as their layers' initializers make them, block by block, each with a seed of its own.

    So they depend on nothing but the seed of the run.

    Args:
        embeddings: The embeddings.
        initializers: The initializers of their layers.
        rule: The optimizer.
        seed: Seed of the run.
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
                for start, stop in _cuts(table.rows, table.width):
                    shape = stop - start, table.width
                    if part:
                        values = np.full(shape, self._rule.initial, np.float32)
                    else:
                        values = self._made(number, start, shape)
                    yield EmbeddingBlock(number, part, start, values)

    def _made(self, number: int, start: int, shape: tuple[int, int]) -> Vector:
        initializer = self._initializers[number]
        config = initializer.get_config()
        if "seed" in config:
            seed = zlib.crc32(repr((self._seed, number, start)).encode())
            initializer = type(initializer)(**{**config, "seed": seed})
        made: Vector = np.asarray(initializer(shape, "float32"))
        return made


@dataclass(frozen=True)
class EmbeddingForm:
    """The form of one embedding in a file.

    Attributes:
        name: Name of its values, as other parameters have one.
        slots: Names of the optimizer's slots.
        rows: Number of rows.
        width: Values of each row.
    """

    name: str
    slots: tuple[str, ...]
    rows: int
    width: int

    @property
    def members(self) -> tuple[str, ...]:
        """Arrays of the file, part by part."""
        slots = (f"slots/{self.name}/{slot}" for slot in self.slots)
        return f"parameters/{self.name}", *slots


def listed(forms: Sequence[EmbeddingForm]) -> str:
    """The content of the array `LIST`."""
    return json.dumps([asdict(form) for form in forms])


def forms_of(text: str) -> tuple[EmbeddingForm, ...]:
    """The forms that `listed` was given."""
    return tuple(
        EmbeddingForm(one["name"], tuple(one["slots"]), one["rows"], one["width"])
        for one in json.loads(text)
    )


def write_embeddings(
    file: IO[bytes], forms: Sequence[EmbeddingForm], source: EmbeddingSource
) -> None:
    """Adds embeddings to an npz file."""
    with ZipFile(file, "a", ZIP_STORED) as archive:
        for (table, part), blocks in groupby(source.blocks(), lambda one: (one.table, one.part)):
            form = forms[table]
            with archive.open(f"{form.members[part]}.npy", "w", force_zip64=True) as member:
                shape = (form.rows, form.width)
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                for block in blocks:
                    member.write(np.ascontiguousarray(block.values).data.cast("B"))


class StoredEmbeddings(EmbeddingSource):
    """Embeddings of an npz file, which stay readable after it was removed or replaced."""

    def __init__(self, file: IO[bytes], forms: Sequence[EmbeddingForm]) -> None:
        self._file = file
        self._forms = forms

    @override
    def blocks(self, *, skips_initial: bool = False) -> Iterator[EmbeddingBlock]:
        # Opened again: others may read at the same time, each at a place of its own.
        with ZipFile(f"/proc/self/fd/{self._file.fileno()}") as archive:
            for number, form in enumerate(self._forms):
                for part, name in enumerate(form.members):
                    with archive.open(f"{name}.npy") as member:
                        _check_header(member, form)
                        for start, stop in _cuts(form.rows, form.width):
                            content: Any = member.read(4 * (stop - start) * form.width)
                            values = np.frombuffer(content, np.float32).reshape(-1, form.width)
                            yield EmbeddingBlock(number, part, start, values)


def stored_embeddings(path: Path, forms: Sequence[EmbeddingForm]) -> StoredEmbeddings:
    """The embeddings of a file with a name."""
    return StoredEmbeddings(path.open("rb"), forms)


def _check_header(member: IO[bytes], form: EmbeddingForm) -> None:
    np.lib.format.read_magic(member)
    shape, _, kind = np.lib.format.read_array_header_1_0(member)
    if shape != (form.rows, form.width) or kind != np.float32:
        raise ValueError(f"{form.name} has shape {shape}, not {(form.rows, form.width)}")


class NoRoomForEmbeddingsError(UserError):
    """A copy of embeddings cannot be written."""


def kept_embeddings(forms: Sequence[EmbeddingForm], source: EmbeddingSource) -> StoredEmbeddings:
    """A copy, in the folder for temporary files, of embeddings that change.

    Raises:
        NoRoomForEmbeddingsError: There is no place for it.
    """
    try:
        file = tempfile.TemporaryFile(prefix="syncswitch-embeddings-")  # noqa: SIM115 (it stays)
        write_embeddings(file, forms, source)
        file.flush()
    except OSError as error:
        raise NoRoomForEmbeddingsError(
            f"a copy of the embeddings cannot be written to {tempfile.gettempdir()}:"
            f" {error.strerror or one_line(error)}; make room there, or name another folder by the"
            " variable TMPDIR"
        ) from error
    return StoredEmbeddings(file, forms)


class EmbeddingServers:
    """Embeddings on all parameter servers, as their chief loads and reads them.

    Args:
        servers: Each an `EmbeddingShard`, or what calls one in another process.
        forms: The forms of the embeddings.
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
        """Lets the servers forget the rows of the last mark."""
        for server in self._servers:
            server.end_read()


class _MarkedEmbeddings(EmbeddingSource):
    def __init__(self, servers: Sequence[Any], forms: Sequence[EmbeddingForm]) -> None:
        self._servers = servers
        self._forms = forms

    @override
    def blocks(self, *, skips_initial: bool = False) -> Iterator[EmbeddingBlock]:
        count = len(self._servers)
        for table, form in enumerate(self._forms):
            for part in range(len(form.members)):
                for start, stop in _cuts(form.rows, form.width):
                    values = np.empty((stop - start, form.width), np.float32)
                    for number, server in enumerate(self._servers):
                        rows = server.read_rows(table, part, *range_on(start, stop, number, count))
                        block_on(start, values, number, count)[:] = rows
                    yield EmbeddingBlock(table, part, start, values)


class LocalEmbeddings:
    """Embeddings in this process that all workers share, for one thread.

    Args:
        plan: All rows.
        forms: The forms of the embeddings.

    Attributes:
        shard: All rows.
    """

    def __init__(self, plan: ShardPlan, forms: Sequence[EmbeddingForm]) -> None:
        self._forms = forms
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
        """The state with the embeddings as they are now, which can be read meanwhile."""
        if not self._forms:
            yield state
            return
        self.shard.mark()
        try:
            yield replace(state, embeddings=self._servers.marked())
        finally:
            self._servers.end_read()

    def kept(self, state: ModelState) -> ModelState:
        """The state with a copy of the embeddings.

        Raises:
            NoRoomForEmbeddingsError: There is no place for it.
        """
        with self.with_embeddings(state) as whole:
            if whole.embeddings is None:
                return state
            return replace(state, embeddings=kept_embeddings(self._forms, whole.embeddings))
