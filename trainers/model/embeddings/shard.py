"""The rows of embeddings that one parameter server holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from syncswitch.trainers.job.embeddings import EmbeddingTable
from syncswitch.trainers.model.embeddings.missed import Counts
from syncswitch.trainers.model.embeddings.rules import AnyRule, Memory, MomentumRule, RowRule
from syncswitch.trainers.model.layout import Vector

Ids = npt.NDArray[np.int64]
"""Numbers of rows, each once, in ascending order."""

# By then every row is brought up to date, so that the memory of updates does not grow for ever.
_MOST_UPDATES = 1 << 18
_ROWS_AT_ONCE = 1 << 16


class RowGradient(NamedTuple):
    """Of one table.

    Attributes:
        ids: Rows with a gradient.
        values: Shape [U, d].
    """

    ids: Ids
    values: Vector

    @property
    def none(self) -> RowGradient:
        """Of no row."""
        return RowGradient(self.ids[:0], self.values[:0])


@dataclass(frozen=True)
class ShardPlan:
    """Of the embeddings of one server.

    Attributes:
        shapes: Rows and their width, of each table.
        rule: The optimizer.
    """

    shapes: tuple[tuple[int, int], ...]
    rule: AnyRule


NO_EMBEDDINGS = ShardPlan((), MomentumRule())


class EmbeddingShard:
    """Rows of embeddings, and what the optimizer remembers of them; for one thread at a time.

    A row is brought up to date when it is wanted, to what the optimizer would have made of it with
    gradients of 0 since its last update.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self._rule = plan.rule
        self._embeddings = [_Table(*shape, plan.rule) for shape in plan.shapes]
        self._first_updates = self._updates = 0
        self._memory = plan.rule.memory()

    def reset(self, updates: int) -> None:
        """Begins anew, after so many updates; rows are 0 until they are loaded."""
        self._updates = updates
        self._forget()
        for table in self._embeddings:
            table.reset(self._rule.initial)

    def load(self, table: int, part: int, start: int, values: Vector) -> None:
        """Overwrites rows from `start` on; for parts see `read`."""
        self._embeddings[table].parts[part][start : start + len(values)] = values

    def pull(self, ids: Sequence[Ids]) -> tuple[Vector, ...]:
        """Values of rows, of each table, or of none at all."""
        return tuple(
            table.values(one, self._memory)
            for table, one in zip(self._embeddings, ids, strict=False)
        )

    def push(
        self, gradients: Sequence[Sequence[RowGradient]], rate: float, momentum: float
    ) -> None:
        """Applies the mean of gradients, of each of which there is one for each table."""
        if not self._embeddings:
            return
        for table, *parts in zip(self._embeddings, *gradients, strict=True):
            ids, gradient = mean_of_rows(parts)
            table.keep(ids)
            rows = table.gathered(ids, self._memory)
            self._rule.apply(rows[0], rows[1:], gradient, self._updates, rate, momentum)
            table.scatter(ids, rows, self._updates + 1 - self._first_updates)
        self._memory.add(self._updates, rate, momentum)
        self._updates += 1
        if self._updates - self._first_updates >= _MOST_UPDATES:
            self._settle()

    def mark(self) -> None:
        """Remembers the rows as they are now, for `read`."""
        memory = self._memory.copy()
        for table in self._embeddings:
            table.mark(memory)

    def read(self, table: int, part: int, start: int, stop: int) -> Vector:
        """Rows as they were at the last `mark`.

        Args:
            table: Its number.
            part: 0 for the values, from 1 on for slots.
            start: First row.
            stop: One after the last.
        """
        return self._embeddings[table].marked(start, stop)[part]

    def unmark(self) -> None:
        """Nobody will `read` any more."""
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
    """Values and slots of rows, and how many updates each of them knows of."""

    def __init__(self, rows: int, width: int, rule: RowRule) -> None:
        self.rows = rows
        # Free until they are written.
        self.parts = [np.zeros((rows, width), np.float32) for _ in range(1 + len(rule.slots))]
        self._last: Counts = np.zeros(rows, np.int32)
        self._mark: _Mark | None = None

    def reset(self, initial: float) -> None:
        self._mark = None
        shape, slots = self.parts[0].shape, len(self.parts) - 1
        # Memory is free until it is written.
        self.parts = []
        self._last = np.zeros(self.rows, np.int32)
        self.parts = [np.zeros(shape, np.float32) for _ in range(1 + slots)]
        if initial:
            for slot in self.parts[1:]:
                slot[:] = initial

    def gathered(self, ids: Ids, memory: Memory) -> list[Vector]:
        """Copies of rows, up to date."""
        found = [np.take(part, ids, axis=0) for part in self.parts]
        memory.catch_up(self._last[ids], found[0], found[1:])
        return found

    def values(self, ids: Ids, memory: Memory) -> Vector:
        """As `gathered`, of values alone."""
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
    """Some rows of a table as they lie there."""

    parts: list[Vector]
    last: Counts

    def at(self, places: npt.NDArray[np.integer]) -> _Rows:
        return _Rows([part[places] for part in self.parts], self.last[places])


@dataclass
class _Mark:
    """Rows that have changed since.

    Attributes:
        memory: Of updates, as it was.
        place: Of each row among those put aside, from 1 on; 0 for one that has not changed.
        aside: Those that have, as they were.
        length: How many.
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
        """Which of these have changed, and what they were."""
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
    """The mean of gradients of one table, summed up in their order; a single one itself."""
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
    """The same numbers of rows.

    Raises:
        ValueError: The table does not have them all.
    """
    if len(ids) and not 0 <= ids[0] <= ids[-1] < table.rows:
        wrong = ids[0] if ids[0] < 0 else ids[-1]
        raise ValueError(
            f"layer {table.layer!r} is asked for row {wrong:,} and has {table.rows:,} rows; give"
            " it a larger input_dim, or smaller numbers"
        )
    return ids
