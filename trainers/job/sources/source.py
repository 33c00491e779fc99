"""The interface through which training reads examples when it wants them."""

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
"""Dicts, tuples and lists as the user gave them, with a leaf for each array; see `nested`."""


class Source(ABC):
    """Examples that are read by their indices.

    Each worker reads from its own copy, possibly from several threads at once. The result must
    depend on the indices alone, because a step may be repeated, even by another worker.

    A worker in another process receives the name of the class and its attributes, or the result of
    its `__getstate__`: numbers, strings, bytes, arrays, and lists and dicts of these. Tuples arrive
    as lists.
    """

    @property
    @abstractmethod
    def examples(self) -> int:
        """Number of examples; their indices start at 0."""

    @abstractmethod
    def read(self, numbers: Array) -> Rows:
        """Reads examples.

        Args:
            numbers: Indices of the wanted examples, in the wanted order.

        Raises:
            WorkloadError: They cannot be read, or have changed.
        """

    @property
    def form(self) -> Form | None:
        """The form in which the arrays make up inputs, labels and possibly weights.

        None if they are one array of inputs and one of labels, or if the data have a `parse`.
        """
        return None

    @property
    def blocks(self) -> Sequence[int]:
        """Sizes of the blocks that are each read as a whole, in the order of the indices.

        A single block means that examples are read one by one.
        """
        return (self.examples,)

    @property
    def blocks_in_window(self) -> int:
        """Number of blocks that are mixed with each other; twice as many must fit into memory."""
        return 1

    def check(self) -> None:  # noqa: B027  (there may be nothing to check)
        """Checks that this process can read; called on each worker before it trains.

        Raises:
            WorkloadError: It cannot.
        """

    def prepare(self, blocks: Sequence[int]) -> None:  # noqa: B027  (or to prepare)
        """Is told which blocks will be wanted soon."""


@dataclass(frozen=True)
class ArraySource(Source):
    """Examples in memory."""

    rows: Rows
    form: Form | None = None

    @property
    @override
    def examples(self) -> int:
        return len(self.rows[0])

    @override
    def read(self, numbers: Array) -> Rows:
        return tuple(np.asarray(one[numbers]) for one in self.rows)
