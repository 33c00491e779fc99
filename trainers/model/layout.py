"""The state of a training: flat vectors, their layout, and sources of large embeddings.

All parameters of a parameter server are one vector: a step has one read and one update instead of
one for each variable, and all replicas share one traced function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources import Array

Vector = npt.NDArray[np.float32]


def squared_length(vector: Vector) -> float:
    """The sum of the squares of its elements."""
    return float(np.dot(vector, vector))


@dataclass(frozen=True)
class ModelState:
    """The state of a training, as flat vectors."""

    parameters: Vector  # trained variables
    slots: Vector  # variables of the optimizer
    statistics: Vector  # variables that move without a gradient
    updates: int = 0  # applied so far
    embeddings: EmbeddingSource | None = None  # trained by rows; None if they travel apart, too


@dataclass(frozen=True)
class EmbeddingLayout:
    """Name and shape of one embedding in checkpoints, and the names of its optimizer's slots."""

    name: str
    slots: tuple[str, ...]
    rows: int
    width: int

    @property
    def members(self) -> tuple[str, ...]:
        """Names of its parts in a checkpoint: the values, the slots, and what rows know already."""
        slots = (f"slots/{self.name}/{slot}" for slot in self.slots)
        return f"parameters/{self.name}", *slots, f"known/{self.name}"

    def form(self, part: int) -> tuple[tuple[int, ...], str]:
        """Returns the shape of a part, and the type of its elements."""
        if part > len(self.slots):
            return (self.rows,), "<i4"
        return (self.rows, self.width), "<f4"


class EmbeddingBlock(NamedTuple):
    """Neighbouring rows of one embedding."""

    table: int
    part: int  # 0 for its values, from 1 on for the optimizer's slots, then what rows know
    start: int
    values: Array


class EmbeddingSource(ABC):
    """Embeddings with their slots, which are read block by block and never held as a whole.

    Rows may wait for updates that had no gradient for them. How many of these each knows already is
    its last part; what they come to is in `memories`. A copy keeps both as they are: a row that is
    brought up to date in two parts differs in its last bits from one that waits for the whole.
    """

    is_initial = False
    """True if the slots are those with which the optimizer begins."""

    def __init__(self, layouts: Sequence[EmbeddingLayout]) -> None:
        self.layouts = tuple(layouts)

    @abstractmethod
    def part(self, table: int, part: int) -> Iterator[Array]:
        """Reads the rows of one part of an embedding in their order, some at a time."""

    def memories(self) -> list[Array]:
        """Returns the state of the `Memory` of each server; without any, no row waits."""
        return []

    def blocks(self, *, skips_initial: bool = False) -> Iterator[EmbeddingBlock]:
        """Reads all rows in order; `skips_initial` leaves out slots that no update has moved."""
        for table, layout in enumerate(self.layouts):
            parts = 1 if skips_initial and self.is_initial else len(layout.members)
            for part in range(parts):
                start = 0
                for values in self.part(table, part):
                    yield EmbeddingBlock(table, part, start, values)
                    start += len(values)


@dataclass(frozen=True)
class FlatLayout:
    """Names and shapes of float32 variables that are packed one after the other."""

    names: tuple[str, ...]  # position and, for people, the variable's own name
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, variables: Iterable[tuple[int, Any]], called: str | None = None) -> FlatLayout:
        """Lays out Keras variables, each behind its position.

        Raises WorkloadError if one that is `called` so, in the error, is not float32.
        """
        kept = list(variables)
        for _, variable in kept:
            if called is not None and str(variable.dtype) != "float32":
                raise WorkloadError(
                    f"model: {called} {variable.path!r} is {variable.dtype}; syncswitch trains "
                    "float32 variables (mixed precision keeps them float32)"
                )
        return cls(
            tuple(f"{index:03d}-{variable.name}" for index, variable in kept),
            tuple(tuple(variable.shape) for _, variable in kept),
        )

    @property
    def sizes(self) -> list[int]:
        return [int(np.prod(shape)) for shape in self.shapes]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def pack(self, values: Sequence[Any]) -> Vector:
        parts = [np.asarray(value, np.float32).ravel() for value in values]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def split(self, flat: Vector) -> list[Vector]:
        """Cuts a flat vector into arrays with the shapes of the variables."""
        cuts = np.cumsum(self.sizes)[:-1]
        parts = np.split(flat, cuts) if self.shapes else []
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def name(self, flat: Vector) -> dict[str, Vector]:
        return dict(zip(self.names, self.split(flat), strict=True))

    def from_named(self, arrays: Mapping[str, Vector]) -> Vector:
        """Joins arrays by logical name, of which only the position counts, to a flat vector.

        Keras numbers variables without a name through in each process, and users' names may do the
        same. Raises KeyError if a variable is missing, ValueError if one has another shape.
        """
        by_place = {_place(name): array for name, array in arrays.items()}
        found = [by_place[_place(name)] for name in self.names]
        for name, array, shape in zip(self.names, found, self.shapes, strict=True):
            if array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}, not {shape}")
        return self.pack(found)


def _place(name: str) -> str:
    return name.partition("-")[0]
