"""The rows of embeddings that one parameter server holds.

Row i of an embedding lies on server i % n, as its row i // n. So the rows that are wanted most,
which often come first, are spread over all servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from syncswitch.trainers.job.embeddings import EmbeddingTable
from syncswitch.trainers.model.embeddings.rules import (
    AnyRule,
    Counts,
    Memory,
    MomentumRule,
    RowRule,
    Update,
)
from syncswitch.trainers.model.layout import Vector

Ids = npt.NDArray[np.int64]
"""Numbers of rows, each once, in ascending order."""

# By then every row is brought up to date, so that the memory of updates does not grow for ever.
_MOST_UPDATES = 1 << 18
_ROWS_AT_ONCE = 1 << 16


class RowGradient(NamedTuple):
    """The gradient of one embedding.

    Attributes:
        ids: Rows that have one.
        values: Their gradients, shape [U, d].
    """

    ids: Ids
    values: Vector

    @property
    def none(self) -> RowGradient:
        """The gradient of no row."""
        return RowGradient(self.ids[:0], self.values[:0])


@dataclass(frozen=True)
class ShardPlan:
    """The embeddings of one server.

    Attributes:
        shapes: Number of rows, and their width, of each embedding.
        rule: The optimizer.
    """

    shapes: tuple[tuple[int, int], ...]
    rule: AnyRule


NO_EMBEDDINGS = ShardPlan((), MomentumRule())


class EmbeddingShard:
    """Rows of embeddings with their optimizer's slots; for one thread at a time.

    A row is brought up to date when it is wanted, to what the optimizer would have made of it with
    gradients of 0 since its last update. A chief calls `load_rows`, `read_rows` and `end_read`.

    Args:
        plan: The embeddings that it holds.
        changing: A lock that these three take; whoever calls anything else holds it already.
    """

    def __init__(
        self, plan: ShardPlan, changing: AbstractContextManager[object] | None = None
    ) -> None:
        self._rule = plan.rule
        self._embeddings = [_Table(*shape, plan.rule) for shape in plan.shapes]
        self._changing = changing or nullcontext()
        self._first_updates = self._updates = 0
        self._memory = plan.rule.memory()

    def reset(self, updates: int) -> None:
        """Begins anew, after so many updates; rows are 0 until they are loaded."""
        self._updates = updates
        self._forget()
        for table in self._embeddings:
            table.reset(self._rule.initial)

    def load_rows(self, table: int, part: int, start: int, values: Vector) -> None:
        """Overwrites rows from `start` on; for parts see `read_rows`."""
        with self._changing:
            self._embeddings[table].parts[part][start : start + len(values)] = values

    def pull(self, ids: Sequence[Ids]) -> tuple[Vector, ...]:
        """Values of rows of each embedding, or of none at all."""
        return tuple(
            table.values(one, self._memory)
            for table, one in zip(self._embeddings, ids, strict=False)
        )

    def push(
        self, gradients: Sequence[Sequence[RowGradient]], rate: float, momentum: float
    ) -> None:
        """Applies the mean of several gradients, each given as one for each embedding."""
        if not self._embeddings:
            return
        update = Update(self._updates, rate, momentum)
        for table, *parts in zip(self._embeddings, *gradients, strict=True):
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
        memory = self._memory.copy()
        for table in self._embeddings:
            table.mark(memory)

    def read_rows(self, table: int, part: int, start: int, stop: int) -> Vector:
        """Rows from `start` to `stop` as they were at the last `mark`.

        Args:
            table: Number of the embedding.
            part: 0 for the values, from 1 on for slots.
            start: First row.
            stop: One after the last.
        """
        with self._changing:
            return self._embeddings[table].marked(start, stop)[part]

    def end_read(self) -> None:
        """Forgets the rows of the last mark."""
        with self._changing:
            for table in self._embeddings:
                table.unmark()

    def _settle(self) -> None:
        for table in self._embeddings:
            for start in range(0, table.rows, _ROWS_AT_ONCE):
                ids = np.arange(start, min(start + _ROWS_AT_ONCE, table.rows))
                table.keep(ids)
                table.scatter(ids, table.gathered(ids, self._memory), 0)
        self._forget()

    def _forget(self) -> None:
        self._first_updates = self._updates
        self._memory = self._rule.memory()


class _Table:
    """Values and slots of rows, and the number of updates that each of them knows."""

    def __init__(self, rows: int, width: int, rule: RowRule) -> None:
        self.rows = rows
        self._shape, self._parts = (rows, width), 1 + len(rule.slots)
        self.reset(0.0)

    def reset(self, initial: float) -> None:
        self._mark: _Mark | None = None
        # What was here goes first. Memory is free until it is written.
        self.parts: list[Vector] = []
        self._last: Counts = np.zeros(self.rows, np.int32)
        self.parts = [np.zeros(self._shape, np.float32) for _ in range(self._parts)]
        if initial:
            for slot in self.parts[1:]:
                slot[:] = initial

    def gathered(self, ids: Ids, memory: Memory) -> list[Vector]:
        """Copies of rows, up to date."""
        found = [np.take(part, ids, axis=0) for part in self.parts]
        memory.catch_up(self._last[ids], found[0], found[1:])
        return found

    def values(self, ids: Ids, memory: Memory) -> Vector:
        """Copies of the values of rows, up to date."""
        if memory.is_empty:
            found: Vector = np.take(self.parts[0], ids, axis=0)
            return found
        return self.gathered(ids, memory)[0]

    def scatter(self, ids: Ids, rows: Sequence[Vector], last: int) -> None:
        for part, values in zip(self.parts, rows, strict=True):
            part[ids] = values
        self._last[ids] = last

    def mark(self, memory: Memory) -> None:
        self._mark = _Mark(memory, np.zeros(self.rows, np.int32), [], 0)

    def unmark(self) -> None:
        self._mark = None

    def keep(self, ids: Ids) -> None:
        """Puts rows aside that are about to change, if they are as they were at a mark."""
        if self._mark is not None:
            new = ids[self._mark.place[ids] == 0]
            rows = [np.take(part, new, axis=0) for part in self.parts]
            self._mark.put_aside(new, _Rows(rows, self._last[new]))

    def marked(self, start: int, stop: int) -> list[Vector]:
        mark = self._mark
        assert mark is not None
        place = slice(start, stop)
        parts, last = [part[place].copy() for part in self.parts], self._last[place].copy()
        changed, kept = mark.among(place)
        if kept is not None:
            for part, values in zip(parts, kept.parts, strict=True):
                part[changed] = values
            last[changed] = kept.last
        mark.memory.catch_up(last, parts[0], parts[1:])
        return parts


class _Rows(NamedTuple):
    """Copies of rows that are perhaps not up to date."""

    parts: list[Vector]
    last: Counts

    def at(self, places: npt.NDArray[np.integer]) -> _Rows:
        return _Rows([part[places] for part in self.parts], self.last[places])


@dataclass
class _Mark:
    """Rows that have changed since a moment.

    Attributes:
        memory: The memory of updates as it was then.
        place: Place of each row among those put aside, from 1 on; 0 for one that has not changed.
        aside: Rows that have changed, as they were.
        length: Number of these.
    """

    memory: Memory
    place: Counts
    aside: list[_Rows]
    length: int

    def put_aside(self, ids: Ids, rows: _Rows) -> None:
        self.place[ids] = np.arange(self.length + 1, self.length + 1 + len(ids))
        self.aside.append(rows)
        self.length += len(ids)

    def among(self, rows: slice) -> tuple[Ids, _Rows | None]:
        """The numbers of those that have changed, and what they were."""
        if not self.aside:
            return np.zeros(0, np.int64), None
        if len(self.aside) > 1:
            parts = zip(*(one.parts for one in self.aside), strict=True)
            last = np.concatenate([one.last for one in self.aside])
            self.aside = [_Rows([np.concatenate(part) for part in parts], last)]
        place = self.place[rows]
        changed = np.flatnonzero(place)
        return changed, self.aside[0].at(place[changed] - 1)


def mean_of_rows(gradients: Sequence[RowGradient]) -> RowGradient:
    """The mean of gradients of one embedding, summed up in their order; a single one itself."""
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
    """The same numbers of rows; raises ValueError where the embedding does not have them all."""
    if len(ids) and not 0 <= ids[0] <= ids[-1] < table.rows:
        wrong = ids[0] if ids[0] < 0 else ids[-1]
        raise ValueError(
            f"layer {table.layer!r} is asked for row {wrong:,} and has {table.rows:,} rows; give"
            " it a larger input_dim, or smaller numbers"
        )
    return ids


def rows_on(rows: int, server: int, servers: int) -> int:
    """Number of an embedding's rows that a server holds."""
    return len(range(server, rows, servers))


def range_on(start: int, stop: int, server: int, servers: int) -> tuple[int, int]:
    """Range of a server's rows that the rows from `start` to `stop` are; these are neighbours."""
    return rows_on(start, server, servers), rows_on(stop, server, servers)


def ids_on(ids: Ids, server: int, servers: int) -> tuple[Ids, Ids]:
    """Places in `ids` of the rows that lie on a server, and their numbers there."""
    (places,) = (ids % servers == server).nonzero()
    return places, ids[places] // servers


def block_on(start: int, values: Vector, server: int, servers: int) -> Vector:
    """Rows that lie on a server, of `values`, which are those from `start` on."""
    return values[(server - start) % servers :: servers]


def ids_for(ids: Sequence[Ids], servers: int) -> list[list[Ids]]:
    """Numbers of the rows that each server is asked for, by embedding."""
    if servers == 1:
        return [list(ids)]
    return [[ids_on(one, server, servers)[1] for one in ids] for server in range(servers)]


def rows_of(ids: Sequence[Ids], found: Sequence[Sequence[Vector]]) -> tuple[Vector, ...]:
    """Rows of each embedding, from what each server has found of `ids_for`."""
    if len(found) == 1:
        return tuple(found[0])
    rows = []
    for one, *parts in zip(ids, *found, strict=True):
        whole = np.empty((len(one), parts[0].shape[1]), np.float32)
        for server, part in enumerate(parts):
            whole[ids_on(one, server, len(parts))[0]] = part
        rows.append(whole)
    return tuple(rows)


def gradients_for(gradients: Sequence[RowGradient], servers: int) -> list[list[RowGradient]]:
    """Gradients that each server is sent, by embedding."""
    if servers == 1:
        return [list(gradients)]
    found: list[list[RowGradient]] = [[] for _ in range(servers)]
    for ids, values in gradients:
        for server in range(servers):
            places, there = ids_on(ids, server, servers)
            found[server].append(RowGradient(there, values[places]))
    return found
