"""Updates of flat vectors, where they are held."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from syncswitch.trainers.model.layout import Vector

# A piece of each vector stays in the processor's cache between the operations on it.
_PIECE = 1 << 16
# Below this a second thread costs more than it saves.
_LEAST_OF_A_THREAD = 1 << 20
_THREADS = os.cpu_count() or 1

Update = Callable[[Vector, Vector, Vector, int, Sequence[Vector], float, float], None]
"""`(parameters, moved, slots, updates, gradients, rate, momentum)`: applies a mean of gradients.

They are summed up in their order; `updates` were applied before. `moved`, which may be `parameters`
itself, is filled with those after the update; slots change in place. An optimizer without momentum
ignores it.
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
    """SGD with momentum, see `MomentumSGD`: the same operations, piece by piece; see `Update`."""

    def update(piece: slice) -> None:
        gradient = mean_of([one[piece] for one in gradients])
        accumulator = slots[piece]
        # What diverges becomes infinite, and is noticed by its loss.
        with np.errstate(over="ignore", invalid="ignore"):
            accumulator *= np.float32(momentum)
            accumulator += gradient
            step = accumulator * np.float32(rate)
            np.subtract(parameters[piece], step, out=moved[piece])

    each_piece(len(parameters), update)


def traced_update(traced: Callable[..., tuple[Vector, Vector]]) -> Update:
    """Any optimizer, from a traced function of whole vectors; see `flat_update`."""

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


def update_of(shipped: Any) -> Update:
    """The optimizer that a plan names; None for SGD with momentum."""
    if shipped is None:
        return momentum_update
    from syncswitch.trainers.model.steps import flat_update

    return traced_update(flat_update(shipped.restored()))


def each_piece(size: int, do: Callable[[slice], None]) -> None:
    """Calls `do` with each piece of a vector of this size, in as many threads as pay."""

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
