"""Long vectors: memory that processes of one machine can share, and updates of it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from syncswitch.trainers.model.layout import Vector

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.exchange.plans import Plan

# TensorFlow uses an array without copying it if it is aligned to this many bytes.
_ALIGNMENT = 64
_BYTES = 4


class Block:
    """Vectors of equal length in shareable memory; zero, and taking no memory, until written.

    `descriptor` is the file of a block that another process has made; by default a new anonymous
    file, which ends with the processes that hold it.
    """

    def __init__(self, rows: int, size: int, descriptor: int | None = None) -> None:
        padded = -(-max(size, 1) * _BYTES // _ALIGNMENT) * _ALIGNMENT
        length = max(rows, 1) * padded
        if descriptor is None:
            descriptor = os.memfd_create("syncswitch")
            os.ftruncate(descriptor, length)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, length)
        values = np.frombuffer(self._memory, np.float32).reshape(max(rows, 1), -1)
        self.rows: list[Vector] = [row[:size] for row in values[:rows]]

    def __del__(self) -> None:
        os.close(self.descriptor)


def aligned(size: int) -> Vector:
    """Returns a vector of zeros that TensorFlow can use without copying it."""
    raw = np.zeros(size * _BYTES + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size * _BYTES].view(np.float32)


# A piece of each vector stays in the processor's cache during the operations on it.
_PIECE = 1 << 16
# Below this a second thread costs more than it saves.
_LEAST_OF_A_THREAD = 1 << 20
_THREADS = os.cpu_count() or 1

Update = Callable[[Vector, Vector, Vector, int, Sequence[Vector], float, float], None]
"""`(parameters, moved, slots, updates, gradients, rate, momentum)`: applies the mean of gradients.

The gradients are summed in their order; `updates` is the number of updates before this one. `moved`
receives the new parameters and may be `parameters` itself; the slots change in place. An optimizer
without momentum ignores it.
"""


def momentum_update(
    parameters: Vector,
    moved: Vector,
    slots: Vector,
    updates: int,
    gradients: Sequence[Vector],
    rate: float,
    momentum: float,
) -> None:
    """Applies SGD with momentum: the operations of `MomentumSGD`, piece by piece; see `Update`."""

    def update(piece: slice) -> None:
        gradient = mean_of([one[piece] for one in gradients])
        accumulator = slots[piece]
        # Parameters that diverge become infinite, which the loss reveals.
        with np.errstate(over="ignore", invalid="ignore"):
            accumulator *= np.float32(momentum)
            accumulator += gradient
            step = accumulator * np.float32(rate)
            np.subtract(parameters[piece], step, out=moved[piece])

    each_piece(len(parameters), update)


def traced_update(traced: Callable[..., tuple[Vector, Vector]]) -> Update:
    """Makes an update of a traced function of whole vectors; see `flat_update`."""

    def update(
        parameters: Vector,
        moved: Vector,
        slots: Vector,
        updates: int,
        gradients: Sequence[Vector],
        *rates: float,
    ) -> None:
        moved[:], slots[:] = traced(parameters, slots, updates, mean_of(gradients), *rates)

    return update


Projection = Callable[[Vector], None]
"""Moves parameters to where the constraints of their variables allow them, in place."""


def traced_projection(traced: Callable[..., Any] | None) -> Projection | None:
    """Makes a projection of a traced `Optimizer.project`; None without constraints."""
    if traced is None:
        return None
    from syncswitch.trainers.model.function import as_array, as_tensor

    def project(parameters: Vector) -> None:
        found = traced(as_tensor(parameters))
        parameters[:] = as_array(found[0] if isinstance(found, list | tuple) else found)

    return project


def projected(update: Update, project: Projection | None) -> Update:
    """Makes an update after which the constraints hold."""
    if project is None:
        return update

    def projecting(parameters: Vector, moved: Vector, *others: Any) -> None:
        update(parameters, moved, *others)
        project(moved)

    return projecting


def update_of(plan: Plan) -> Update:
    """Returns the update of a plan's optimizer; those of Keras see to constraints themselves."""
    if plan.update is None:
        return projected(momentum_update, projection_of(plan))
    from syncswitch.trainers.model.function import flat_update

    return traced_update(flat_update(plan.update.restored()))


def projection_of(plan: Plan) -> Projection | None:
    """Returns the projection of a plan; None without constraints."""
    return traced_projection(None if plan.project is None else plan.project.restored())


def added(parameters: Vector, change: Vector, moved: Vector) -> None:
    """Adds a change to parameters, piece by piece."""

    def add(piece: slice) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            np.add(parameters[piece], change[piece], out=moved[piece])

    each_piece(len(parameters), add)


def each_piece(size: int, do: Callable[[slice], None]) -> None:
    """Calls `do` with each piece of a vector of this size, in as many threads as are worthwhile."""

    def go_through(start: int, stop: int) -> None:
        for first in range(start, stop, _PIECE):
            do(slice(first, min(stop, first + _PIECE)))

    threads = min(_THREADS, max(1, size // _LEAST_OF_A_THREAD))
    if threads == 1:
        go_through(0, size)
        return
    cuts = [size * part // threads for part in range(threads + 1)]
    list(_pool().map(go_through, cuts[:-1], cuts[1:]))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="update")


def mean_of(vectors: Sequence[Vector]) -> Vector:
    """Returns the mean of vectors, summed in their order; a single vector itself."""
    first, *others = vectors
    if not others:
        return first
    with np.errstate(over="ignore", invalid="ignore"):
        total = first + others[0]
        for one in others[1:]:
            total += one
        total /= np.float32(len(vectors))
    return total
