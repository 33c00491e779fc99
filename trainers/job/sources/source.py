"""Examples that are read when somebody wants them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

Array = npt.NDArray[Any]
Rows = tuple[Array, ...]
"""Some examples: arrays with a row for each of them, such as inputs and labels."""
Form = Any
"""Dicts, tuples and lists as they were given, with a leaf in place of each array; see `nested`."""


class Source(ABC):
    """Examples that are read by their numbers, wherever they lie.

    Each worker reads from a copy of its own; several threads may read at once. What is read has to
    depend on the numbers alone, as a step may be done again, and by somebody else.

    To a worker in another process travel the name of its class and its attributes, or what its
    `__getstate__` gives instead: numbers, texts, bytes, arrays, lists and dicts of these. Tuples
    arrive as lists.
    """

    @property
    @abstractmethod
    def examples(self) -> int:
        """Number of examples, which are numbered from 0."""

    @abstractmethod
    def read(self, numbers: Array) -> Rows:
        """Reads examples.

        Args:
            numbers: Numbers of the wanted examples, in the wanted order.

        Raises:
            WorkloadError: They cannot be read, or are not what they were.
        """

    @property
    def form(self) -> Form | None:
        """The form in which the arrays that are read make inputs, labels and perhaps weights.

        None where they are two arrays, or where the data have a `parse`.
        """
        return None

    @property
    def blocks(self) -> Sequence[int]:
        """Sizes of the pieces that are read as a whole, in the order of the numbers.

        A single one says that examples are read one by one.
        """
        return (self.examples,)

    @property
    def blocks_in_window(self) -> int:
        """So many blocks are mixed with each other; also what fits into memory twice."""
        return 1

    def check(self) -> None:  # noqa: B027  (there may be nothing to check)
        """Looks whether this process can read; called on each worker before it trains.

        Raises:
            WorkloadError: It cannot.
        """

    def prepare(self, blocks: Sequence[int]) -> None:  # noqa: B027  (or to prepare)
        """Hears which blocks are wanted soon."""


@dataclass(frozen=True)
class ArraySource(Source):
    """Examples in memory.

    Attributes:
        rows: Arrays of all examples.
        form: See `Source`.
    """

    rows: Rows
    form: Form | None = None

    @property
    @override
    def examples(self) -> int:
        return len(self.rows[0])

    @override
    def read(self, numbers: Array) -> Rows:
        return tuple(np.asarray(one[numbers]) for one in self.rows)
