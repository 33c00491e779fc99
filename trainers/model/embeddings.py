"""Embeddings by rows, held by parameter servers alone, and moved there and back by blocks.

Row i of an embedding lies on server i % n, as its row i // n. So the most wanted rows, which are
often the first, are spread over all servers. A block is some neighbouring rows: of an initializer,
a file or the servers.
"""

from __future__ import annotations

import math
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import IO, Any, NamedTuple, Protocol
from zipfile import ZIP_STORED, ZipFile

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from syncswitch.storage.errors import UserError, one_line
from syncswitch.trainers.job.embeddings import EmbeddingTable
from syncswitch.trainers.job.sources import Array
from syncswitch.trainers.model.layout import EmbeddingLayout, EmbeddingSource, ModelState, Vector
from syncswitch.trainers.model.row_rules import (
    AnyRule,
    Counts,
    Memory,
    MomentumRule,
    RowRule,
    Update,
)

Ids = npt.NDArray[np.int64]  # numbers of rows, each once, in ascending order

# After so many updates all rows are brought up to date, which bounds the memory of updates.
_MOST_UPDATES = 1 << 18
_ROWS_AT_ONCE = 1 << 16


class RowGradient(NamedTuple):
    """The gradient of one embedding: of the rows `ids` alone, shape [U, d]."""

    ids: Ids
    values: Vector

    @property
    def none(self) -> RowGradient:
        return RowGradient(self.ids[:0], self.values[:0])


@dataclass(frozen=True)
class ShardPlan:
    """The embeddings of one server: number and width of the rows of each, and the optimizer."""

    shapes: tuple[tuple[int, int], ...]
    rule: AnyRule


NO_EMBEDDINGS = ShardPlan((), MomentumRule())


class EmbeddingShard:
    """Rows of embeddings with their optimizer's slots; for one thread at a time.

    A row is brought up to date when it is wanted: to what the optimizer would have made of it with
    gradients of 0 since its last update. A chief calls `load_rows` and `load_memory`, `read_rows`
    and `read_memory`, and `end_read`.

    These take the lock `changing`, which callers of all others have to hold.
    """

    def __init__(
        self, plan: ShardPlan, changing: AbstractContextManager[object] | None = None
    ) -> None:
        self._rule = plan.rule
        self._tables = [_Table(*shape, plan.rule) for shape in plan.shapes]
        self._changing = changing or nullcontext()
        self._first_updates = self._updates = 0
        self._memory = plan.rule.memory()
        self._marked_memory = np.zeros(0)

    def reset(self, updates: int) -> None:
        """Starts anew after this number of updates; rows are 0 until they are loaded."""
        self._updates = updates
        self._forget()
        for table in self._tables:
            table.reset()

    def load_rows(self, table: int, part: int, start: int, values: Array) -> None:
        """Overwrites rows from `start` on; see `read_rows`."""
        with self._changing:
            self._tables[table].arrays[part][start : start + len(values)] = values

    def load_memory(self, state: Array) -> None:
        """Replaces the memory of the updates that rows wait for."""
        with self._changing:
            self._memory = self._rule.memory(state)
            self._first_updates = self._updates - self._memory.updates

    def pull(self, ids: Sequence[Ids]) -> tuple[Vector, ...]:
        """Returns the values of rows of each embedding; without `ids` of none."""
        return tuple(
            table.values(one, self._memory) for table, one in zip(self._tables, ids, strict=False)
        )

    def push(
        self,
        gradients: Sequence[Sequence[RowGradient]],
        rate: float,
        momentum: float,
        own_workers: int = 0,
    ) -> None:
        """Applies the mean of several gradients, each of which has one for each embedding.

        For `own_workers` see `Update`.
        """
        if not self._tables:
            return
        update = Update(self._updates, rate, momentum, own_workers)
        for table, *parts in zip(self._tables, *gradients, strict=True):
            ids, gradient = mean_of_rows(parts)
            table.keep(ids)
            rows = table.gathered(ids, self._memory)
            with np.errstate(over="ignore", invalid="ignore"):
                self._rule.apply(rows[0], rows[1:], gradient, update)
            table.scatter(ids, rows, self._updates + 1 - self._first_updates)
        self._memory.add(update)
        self._updates += 1
        if self._updates - self._first_updates >= _MOST_UPDATES:
            self._settle()

    def mark(self) -> None:
        """Remembers the rows as they are now, for `read_rows`."""
        self._marked_memory = self._memory.state()
        for table in self._tables:
            table.mark = _Mark(np.zeros(table.rows, np.int32))

    def read_rows(self, table: int, part: int, start: int, stop: int) -> Array:
        """Returns rows of an embedding, or of another part of it, as at the last `mark`.

        They are not brought up to date, see `EmbeddingSource`.
        """
        with self._changing:
            return self._tables[table].marked(part, start, stop)

    def read_memory(self) -> Array:
        """Returns the state of the memory at the last `mark`."""
        with self._changing:
            return self._marked_memory

    def end_read(self) -> None:
        with self._changing:
            self._marked_memory = self._marked_memory[:0]
            for table in self._tables:
                table.mark = None

    def _settle(self) -> None:
        """Brings all rows up to date, and forgets the updates."""
        for table in self._tables:
            for start in range(0, table.rows, _ROWS_AT_ONCE):
                ids = np.arange(start, min(start + _ROWS_AT_ONCE, table.rows))
                table.keep(ids)
                table.scatter(ids, table.gathered(ids, self._memory), 0)
        self._forget()

    def _forget(self) -> None:
        self._first_updates = self._updates
        self._memory = self._rule.memory()


@dataclass
class _Mark:
    """The rows that have changed since a moment, as they were then."""

    place: Counts  # of each row among those put aside, from 1 on; 0 if unchanged
    aside: list[list[Any]] = field(default_factory=list)  # as `_Table.arrays`, from each change
    length: int = 0  # number of rows put aside


class _Table:
    """Rows of one embedding: their values, their slots, and how many updates each already knows."""

    def __init__(self, rows: int, width: int, rule: RowRule) -> None:
        self.rows, self._width, self._rule = rows, width, rule
        self.reset()

    def reset(self) -> None:
        self.mark: _Mark | None = None
        # The old arrays go first. Memory is free until it is written.
        self.arrays: list[Any] = []
        for _ in range(1 + len(self._rule.slots)):
            self.arrays.append(np.zeros((self.rows, self._width), np.float32))
        if self._rule.initial:
            for slot in self.arrays[1:]:
                slot[:] = self._rule.initial
        self.arrays.append(np.zeros(self.rows, np.int32))

    def gathered(self, ids: Ids, memory: Memory) -> list[Vector]:
        *parts, last = [np.take(one, ids, axis=0) for one in self.arrays]
        memory.catch_up(last, parts[0], parts[1:])
        return parts

    def values(self, ids: Ids, memory: Memory) -> Vector:
        if memory.is_empty:
            return np.asarray(np.take(self.arrays[0], ids, axis=0))
        return self.gathered(ids, memory)[0]

    def scatter(self, ids: Ids, rows: Sequence[Vector], last: int) -> None:
        for array, values in zip(self.arrays, [*rows, last], strict=True):
            array[ids] = values

    def keep(self, ids: Ids) -> None:
        """Puts rows aside that are about to change for the first time since the mark."""
        mark = self.mark
        if mark is not None:
            new = ids[mark.place[ids] == 0]
            mark.place[new] = np.arange(mark.length + 1, mark.length + 1 + len(new))
            mark.aside.append([np.take(one, new, axis=0) for one in self.arrays])
            mark.length += len(new)

    def marked(self, part: int, start: int, stop: int) -> Array:
        """Copies one part of rows as it was at the mark."""
        mark = self.mark
        assert mark is not None
        rows: Array = self.arrays[part][start:stop].copy()
        changed = np.flatnonzero(mark.place[start:stop])
        if len(changed):
            if len(mark.aside) > 1:
                mark.aside = [list(map(np.concatenate, zip(*mark.aside, strict=True)))]
            rows[changed] = mark.aside[0][part][mark.place[start:stop][changed] - 1]
        return rows


def mean_of_rows(gradients: Sequence[RowGradient]) -> RowGradient:
    """Averages gradients of one embedding, summed in their order; returns a single one itself."""
    if len(gradients) == 1:
        return gradients[0]
    ids, places = np.unique(np.concatenate([one.ids for one in gradients]), return_inverse=True)
    total = np.zeros((len(ids), gradients[0].values.shape[1]), np.float32)
    start = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for one in gradients:
            total[places[start : start + len(one.ids)]] += one.values
            start += len(one.ids)
        total /= np.float32(len(gradients))
    return RowGradient(ids, total)


def checked_ids(table: EmbeddingTable, ids: Ids) -> Ids:
    """Returns the numbers of rows; raises ValueError if the embedding lacks one of them."""
    if len(ids) and not 0 <= ids[0] <= ids[-1] < table.rows:
        wrong = ids[0] if ids[0] < 0 else ids[-1]
        raise ValueError(
            f"layer {table.layer!r} is asked for row {wrong:,} and has {table.rows:,} rows; give"
            " it a larger input_dim, or smaller numbers"
        )
    return ids


def rows_on(rows: int, server: int, servers: int) -> int:
    """Counts the rows below `rows` that lie on a server."""
    return len(range(server, rows, servers))


def ids_on(ids: Ids, server: int, servers: int) -> tuple[Ids, Ids]:
    """Returns the places in `ids` of the rows that lie on a server, and their numbers there."""
    (places,) = (ids % servers == server).nonzero()
    return places, ids[places] // servers


def block_on(start: int, values: Array, server: int, servers: int) -> Array:
    """Returns a view of those `values`, the rows from `start` on, that lie on a server."""
    return values[(server - start) % servers :: servers]


def ids_for(ids: Sequence[Ids], servers: int) -> list[list[Ids]]:
    """Returns the numbers of the rows to ask each server for, by embedding."""
    if servers == 1:
        return [list(ids)]
    return [[ids_on(one, server, servers)[1] for one in ids] for server in range(servers)]


def rows_of(ids: Sequence[Ids], by_server: Sequence[Sequence[Vector]]) -> tuple[Vector, ...]:
    """Joins the rows that the servers have found for `ids_for`, by embedding."""
    if len(by_server) == 1:
        return tuple(by_server[0])
    rows = []
    for one, *parts in zip(ids, *by_server, strict=True):
        whole = np.empty((len(one), parts[0].shape[1]), np.float32)
        for server, part in enumerate(parts):
            whole[ids_on(one, server, len(parts))[0]] = part
        rows.append(whole)
    return tuple(rows)


def gradients_for(gradients: Sequence[RowGradient], servers: int) -> list[list[RowGradient]]:
    """Returns the gradients to send to each server, by embedding."""
    if servers == 1:
        return [list(gradients)]
    by_server: list[list[RowGradient]] = [[] for _ in range(servers)]
    for ids, values in gradients:
        for server in range(servers):
            places, there = ids_on(ids, server, servers)
            by_server[server].append(RowGradient(there, values[places]))
    return by_server


BLOCK_VALUES = 1 << 18
"""About this many values are made, moved and written at once. Initial rows depend on it."""


def _cuts(layout: EmbeddingLayout) -> Iterator[tuple[int, int]]:
    """Yields the first row of each block, and the one after its last."""
    step = max(1, BLOCK_VALUES // layout.width)
    for start in range(0, layout.rows, step):
        yield start, min(start + step, layout.rows)


class InitialEmbeddings(EmbeddingSource):
    """Rows as the initializers of their layers make them; they depend on the run's seed alone."""

    is_initial = True

    def __init__(
        self,
        layouts: Sequence[EmbeddingLayout],
        initializers: Sequence[Any],
        rule: RowRule,
        seed: int,
    ) -> None:
        super().__init__(layouts)
        self._initializers = initializers
        self._rule = rule
        self._seed = seed

    @override
    def part(self, table: int, part: int) -> Iterator[Array]:
        layout, initializer = self.layouts[table], self._initializers[table]
        config = initializer.get_config()
        for start, stop in _cuts(layout):
            shape = stop - start, layout.width
            if part > len(layout.slots):
                yield np.zeros(stop - start, np.int32)
                continue
            if part:
                yield np.full(shape, self._rule.initial, np.float32)
                continue
            if "seed" in config:
                seed = zlib.crc32(repr((self._seed, table, start)).encode())
                initializer = type(initializer)(**{**config, "seed": seed})
            yield np.asarray(initializer(shape, "float32"))


class SettledEmbeddings(EmbeddingSource):
    """Embeddings that are brought up to date while they are read: no row waits any more."""

    def __init__(self, source: EmbeddingSource, rule: RowRule) -> None:
        super().__init__(source.layouts)
        self.is_initial = source.is_initial
        self._source = source
        self._memories = list(map(rule.memory, source.memories()))

    @override
    def part(self, table: int, part: int) -> Iterator[Array]:
        count, start = len(self._memories), 0
        if not count:
            yield from self._source.part(table, part)
            return
        parts = range(len(self.layouts[table].members))
        for read in zip(*(self._source.part(table, one) for one in parts), strict=True):
            rows = [one.copy() for one in read]
            for number, memory in enumerate(self._memories):
                *values, last = [block_on(start, one, number, count) for one in rows]
                memory.catch_up(last, values[0], values[1:])
            start += len(rows[0])
            rows[-1][:] = 0
            yield rows[part]


MEMORY = "memory"
"""The memory of server i is the array `memory/i` of a checkpoint."""


def write_embeddings(file: IO[bytes], source: EmbeddingSource) -> None:
    """Adds embeddings to an npz file."""
    with ZipFile(file, "a", ZIP_STORED) as archive:
        for (table, part), blocks in groupby(source.blocks(), lambda one: (one.table, one.part)):
            layout = source.layouts[table]
            with archive.open(f"{layout.members[part]}.npy", "w", force_zip64=True) as member:
                shape, kind = layout.form(part)
                header = {"descr": kind, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                for block in blocks:
                    member.write(np.ascontiguousarray(block.values).data.cast("B"))
        for number, state in enumerate(source.memories()):
            with archive.open(f"{MEMORY}/{number}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, state)


class StoredEmbeddings(EmbeddingSource):
    """Embeddings of an open npz file, readable even after it was removed or replaced."""

    def __init__(self, file: IO[bytes], layouts: Sequence[EmbeddingLayout]) -> None:
        super().__init__(layouts)
        self._file = file

    @override
    def part(self, table: int, part: int) -> Iterator[Array]:
        layout = self.layouts[table]
        name = f"{layout.members[part]}.npy"
        with self._archive() as archive:
            if part > len(layout.slots) and name not in archive.namelist():
                # An older file: no row waits.
                yield from (np.zeros(stop - start, np.int32) for start, stop in _cuts(layout))
                return
        with self._archive() as archive, archive.open(name) as member:
            np.lib.format.read_magic(member)
            shape, _, kind = np.lib.format.read_array_header_1_0(member)
            wanted, _ = layout.form(part)
            if (shape, kind.str) != layout.form(part):
                raise ValueError(f"{layout.name} has shape {shape}, not {wanted}")
            for start, stop in _cuts(layout):
                own = stop - start, *shape[1:]
                content: Any = member.read(kind.itemsize * math.prod(own))
                yield np.frombuffer(content, kind).reshape(own)

    @override
    def memories(self) -> list[Array]:
        states = list[Array]()
        with self._archive() as archive:
            names = set(archive.namelist())
            while (name := f"{MEMORY}/{len(states)}.npy") in names:
                with archive.open(name) as member:
                    states.append(np.lib.format.read_array(member))
        return states

    def _archive(self) -> ZipFile:
        # Opened again: others may read at the same time, each at a place of its own.
        return ZipFile(f"/proc/self/fd/{self._file.fileno()}")


class NoRoomForEmbeddingsError(UserError):
    """A copy of embeddings cannot be written."""


def kept_embeddings(source: EmbeddingSource) -> StoredEmbeddings:
    """Copies embeddings that change to the folder for temporary files, if there is room.

    Raises NoRoomForEmbeddingsError if there is none.
    """
    try:
        file = tempfile.TemporaryFile(prefix="syncswitch-embeddings-")  # noqa: SIM115 (it stays)
        write_embeddings(file, source)
        file.flush()
    except OSError as error:
        raise NoRoomForEmbeddingsError(
            f"a copy of the embeddings cannot be written to {tempfile.gettempdir()}:"
            f" {error.strerror or one_line(error)}; free some disk space, or name another folder by"
            " the variable TMPDIR",
            code="disk-full",
        ) from error
    return StoredEmbeddings(file, source.layouts)


class RowAccess(Protocol):
    """The rows of a parameter server, here or in another process; see `EmbeddingShard`."""

    def load_rows(self, table: int, part: int, start: int, values: Array) -> None: ...
    def load_memory(self, state: Array) -> None: ...
    def read_rows(self, table: int, part: int, start: int, stop: int) -> Array: ...
    def read_memory(self) -> Array: ...
    def end_read(self) -> None: ...


class EmbeddingServers(EmbeddingSource):
    """The embeddings on all parameter servers; read as a source they are those at the last mark."""

    def __init__(
        self, servers: Sequence[RowAccess], layouts: Sequence[EmbeddingLayout], rule: RowRule | None
    ) -> None:
        super().__init__(layouts)
        self._servers = servers
        self._rule = rule

    def load(self, source: EmbeddingSource) -> None:
        count, states = len(self._servers), source.memories()
        if len(states) != count and self._rule is not None:
            # Rows lie elsewhere than they did.
            source, states = SettledEmbeddings(source, self._rule), []
        for server, state in zip(self._servers, states, strict=False):
            server.load_memory(state)
        for table, part, start, values in source.blocks(skips_initial=True):
            for number, server in enumerate(self._servers):
                rows = np.ascontiguousarray(block_on(start, values, number, count))
                server.load_rows(table, part, rows_on(start, number, count), rows)

    @override
    def part(self, table: int, part: int) -> Iterator[Array]:
        count = len(self._servers)
        (_, *width), kind = self.layouts[table].form(part)
        for start, stop in _cuts(self.layouts[table]):
            values = np.empty((stop - start, *width), kind)
            for number, server in enumerate(self._servers):
                own = rows_on(start, number, count), rows_on(stop, number, count)
                block_on(start, values, number, count)[:] = server.read_rows(table, part, *own)
            yield values

    @override
    def memories(self) -> list[Array]:
        return [server.read_memory() for server in self._servers]

    def end_read(self) -> None:
        for server in self._servers:
            server.end_read()


class LocalEmbeddings:
    """Embeddings in this process that all workers share, in one shard; for one thread."""

    def __init__(self, plan: ShardPlan, layouts: Sequence[EmbeddingLayout]) -> None:
        self.shard = EmbeddingShard(plan)
        self._servers = EmbeddingServers([self.shard], layouts, plan.rule)

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
        if not self._servers.layouts:
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
            copied = None if whole.embeddings is None else kept_embeddings(whole.embeddings)
            return replace(state, embeddings=copied)
