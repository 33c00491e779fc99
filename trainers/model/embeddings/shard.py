"""The rows of embeddings that one parameter server holds.

Row i of an embedding lies on server i % n, as its row i // n. So the most wanted rows, which are
often the first, are spread over all servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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

# After so many updates all rows are brought up to date, which bounds the memory of updates.
_MOST_UPDATES = 1 << 18
_ROWS_AT_ONCE = 1 << 16


class RowGradient(NamedTuple):
    """The gradient of one embedding: of the rows `ids` alone, shape [U, d]."""

    ids: Ids
    values: Vector

    @property
    def none(self) -> RowGradient:
        """The gradient of no row."""
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
    gradients of 0 since its last update. A chief calls `load_rows`, `read_rows` and `end_read`.

    These three take the lock `changing`, which callers of all others have to hold.
    """

    def __init__(
        self, plan: ShardPlan, changing: AbstractContextManager[object] | None = None
    ) -> None:
        self._rule = plan.rule
        self._tables = [_Table(*shape, plan.rule) for shape in plan.shapes]
        self._changing = changing or nullcontext()
        self._first_updates = self._updates = 0
        self._memory = plan.rule.memory()

    def reset(self, updates: int) -> None:
        """Starts anew after this number of updates; rows are 0 until they are loaded."""
        self._updates = updates
        self._forget()
        for table in self._tables:
            table.reset()

    def load_rows(self, table: int, part: int, start: int, values: Vector) -> None:
        """Overwrites rows from `start` on; see `read_rows`."""
        with self._changing:
            self._tables[table].arrays[part][start : start + len(values)] = values

    def pull(self, ids: Sequence[Ids]) -> tuple[Vector, ...]:
        """Returns the values of rows of each embedding; without `ids` of none."""
        return tuple(
            table.values(one, self._memory) for table, one in zip(self._tables, ids, strict=False)
        )

    def push(
        self, gradients: Sequence[Sequence[RowGradient]], rate: float, momentum: float
    ) -> None:
        """Applies the mean of several gradients, each of which has one for each embedding."""
        if not self._tables:
            return
        update = Update(self._updates, rate, momentum)
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
        memory = self._memory.copy()
        for table in self._tables:
            table.mark = _Mark(memory, np.zeros(table.rows, np.int32))

    def read_rows(self, table: int, part: int, start: int, stop: int) -> Vector:
        """Returns rows of an embedding, or of a slot (`part` 1 on), as at the last `mark`."""
        with self._changing:
            return self._tables[table].marked(start, stop)[part]

    def end_read(self) -> None:
        """Forgets the rows of the last mark."""
        with self._changing:
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

    memory: Memory
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
        """Copies values and slots of rows, up to date."""
        *parts, last = [np.take(one, ids, axis=0) for one in self.arrays]
        memory.catch_up(last, parts[0], parts[1:])
        return parts

    def values(self, ids: Ids, memory: Memory) -> Vector:
        """Copies the values of rows, up to date."""
        if memory.is_empty:
            found: Vector = np.take(self.arrays[0], ids, axis=0)
            return found
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

    def marked(self, start: int, stop: int) -> list[Vector]:
        """Copies values and slots of rows as they were at the mark, up to date."""
        mark = self.mark
        assert mark is not None
        found = [one[start:stop].copy() for one in self.arrays]
        changed = np.flatnonzero(mark.place[start:stop])
        if len(changed):
            if len(mark.aside) > 1:
                mark.aside = [list(map(np.concatenate, zip(*mark.aside, strict=True)))]
            places = mark.place[start:stop][changed] - 1
            for one, aside in zip(found, mark.aside[0], strict=True):
                one[changed] = aside[places]
        *parts, last = found
        mark.memory.catch_up(last, parts[0], parts[1:])
        return parts


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


def block_on(start: int, values: Vector, server: int, servers: int) -> Vector:
    """Returns a view of those `values`, the rows from `start` on, that lie on a server."""
    return values[(server - start) % servers :: servers]


def ids_for(ids: Sequence[Ids], servers: int) -> list[list[Ids]]:
    """Returns the numbers of the rows to ask each server for, by embedding."""
    if servers == 1:
        return [list(ids)]
    return [[ids_on(one, server, servers)[1] for one in ids] for server in range(servers)]


def rows_of(ids: Sequence[Ids], found: Sequence[Sequence[Vector]]) -> tuple[Vector, ...]:
    """Joins the rows that the servers have found for `ids_for`, by embedding."""
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
    """Returns the gradients to send to each server, by embedding."""
    if servers == 1:
        return [list(gradients)]
    found: list[list[RowGradient]] = [[] for _ in range(servers)]
    for ids, values in gradients:
        for server in range(servers):
            places, there = ids_on(ids, server, servers)
            found[server].append(RowGradient(there, values[places]))
    return found
