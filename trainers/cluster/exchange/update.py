"""Updates of flat vectors, where they are held."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.trainers.model.layout import Vector

# A piece of each vector stays in the processor's cache between the operations on it.
_PIECE = 1 << 16
# Below this a second thread costs more than it saves.
_LEAST_OF_A_THREAD = 1 << 20

FlatUpdate = Callable[..., tuple[Vector, Vector]]
"""`(parameters, slots, updates, gradient, rate, momentum)` to parameters and slots after it."""


class Update(ABC):
    """Applies gradients to parameters and slots."""

    @abstractmethod
    def apply(
        self,
        parameters: Vector,
        moved: Vector,
        slots: Vector,
        updates: int,
        gradients: Sequence[Vector],
        rate: float,
        momentum: float,
    ) -> None:
        """Applies the mean of gradients as one update.

        Args:
            parameters: As they are, shape [P].
            moved: Is filled with those after the update; may be `parameters` itself.
            slots: Of the optimizer; changed in place.
            updates: Applied before.
            gradients: Each of shape [P]; summed up in this order.
            rate: Learning rate.
            momentum: An optimizer without momentum ignores it.
        """


class MomentumUpdate(Update):
    """SGD with momentum, see `MomentumSGD`: the same operations, piece by piece."""

    @override
    def apply(
        self,
        parameters: Vector,
        moved: Vector,
        slots: Vector,
        updates: int,
        gradients: Sequence[Vector],
        rate: float,
        momentum: float,
    ) -> None:
        def update(piece: slice) -> None:
            gradient = mean_of([one[piece] for one in gradients])
            accumulator = slots[piece]
            # What diverges becomes infinite, and is noticed by its loss.
            with np.errstate(over="ignore", invalid="ignore"):
                accumulator *= np.float32(momentum)
                accumulator += gradient
                step = accumulator * np.float32(rate)
                np.subtract(parameters[piece], step, out=moved[piece])

        self._pieces.each(len(parameters), update)

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces()


class TracedUpdate(Update):
    """Any optimizer, as a traced function of whole vectors."""

    def __init__(self, traced: FlatUpdate) -> None:
        self._traced = traced

    @override
    def apply(
        self,
        parameters: Vector,
        moved: Vector,
        slots: Vector,
        updates: int,
        gradients: Sequence[Vector],
        rate: float,
        momentum: float,
    ) -> None:
        gradient = mean_of(gradients)
        found = self._traced(parameters, slots, updates, gradient, rate, momentum)
        moved[:], slots[:] = found


def update_of(shipped: Any) -> Update:
    """The optimizer that a plan names; None for SGD with momentum."""
    if shipped is None:
        return MomentumUpdate()
    from syncswitch.trainers.model.steps import flat_update

    return TracedUpdate(flat_update(shipped.restored()))


class Pieces:
    """Goes through long vectors piece by piece, with as many threads as pay."""

    def __init__(self) -> None:
        self._threads = os.cpu_count() or 1

    def each(self, size: int, do: Callable[[slice], None]) -> None:
        """Calls `do` with each piece of a vector of this size."""
        threads = min(self._threads, max(1, size // _LEAST_OF_A_THREAD))
        if threads == 1:
            _go_through(do, 0, size)
            return
        cuts = [size * part // threads for part in range(threads + 1)]
        list(self._pool.map(partial(_go_through, do), cuts[:-1], cuts[1:]))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, thread_name_prefix="update")


def mean_of(vectors: Sequence[Vector]) -> Vector:
    """The mean of vectors, summed up in their order; a single one itself."""
    first, *others = vectors
    if not others:
        return first
    with np.errstate(over="ignore", invalid="ignore"):
        total = first + others[0]
        for one in others[1:]:
            total += one
        total /= np.float32(len(vectors))
    return total


def _go_through(do: Callable[[slice], None], start: int, stop: int) -> None:
    for piece in _pieces(start, stop):
        do(piece)


def _pieces(start: int, stop: int) -> Iterator[slice]:
    for first in range(start, stop, _PIECE):
        yield slice(first, min(stop, first + _PIECE))
