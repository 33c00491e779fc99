"""Updates of flat vectors, in place and piece by piece; without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from syncswitch.trainers.model.layout import Vector

# A piece of each vector stays in the processor's cache during the operations on it.
PIECE = 1 << 16
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


Projection = Callable[[Vector], None]
"""Moves parameters to where the constraints of their variables allow them, in place."""


def projected(update: Update, project: Projection | None) -> Update:
    """Makes an update after which the constraints hold."""
    if project is None:
        return update

    def projecting(parameters: Vector, moved: Vector, *others: Any) -> None:
        update(parameters, moved, *others)
        project(moved)

    return projecting


def added(parameters: Vector, change: Vector, moved: Vector) -> None:
    """Adds a change to parameters, piece by piece."""

    def add(piece: slice) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            np.add(parameters[piece], change[piece], out=moved[piece])

    each_piece(len(parameters), add)


def each_piece(size: int, do: Callable[[slice], None]) -> None:
    """Calls `do` with each piece of a vector of this size, in as many threads as are worthwhile."""

    def go_through(start: int, stop: int) -> None:
        for first in range(start, stop, PIECE):
            do(slice(first, min(stop, first + PIECE)))

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


OUTER_RATE = 0.7
OUTER_MOMENTUM = 0.9

NO_OUTER: Vector = np.zeros(0, np.float32)
"""The outer state of replicas without outer steps."""


def first_outer_state(parameters: Vector) -> Vector:
    """Returns the outer state of replicas that begin: where they were last joined, and zeros."""
    return np.concatenate([parameters, np.zeros_like(parameters)])


def outer_step(outer: Vector, mean: Vector) -> None:
    """Replaces the mean of replicas, in place, by a step of Nesterov's SGD towards it.

    With d, what the replicas have moved away from where they were last joined:
    `velocity = 0.9 * velocity + d; joined -= 0.7 * (d + 0.9 * velocity)`.

    Source: Douillard et al., DiLoCo: Distributed Low-Communication Training of Language Models
    (arXiv 2311.08105), section 2, with the values of its experiments.

    Args:
        outer: The outer state, see `begun`; its velocity changes in place. Shape [2 P].
        mean: The mean of the replicas' parameters. Shape [P].
    """
    joined, velocity = np.split(outer, 2)
    momentum, rate = np.float32(OUTER_MOMENTUM), np.float32(OUTER_RATE)
    # Parameters that diverge become infinite, which the loss reveals.
    with np.errstate(over="ignore", invalid="ignore"):
        moved = joined - mean
        velocity *= momentum
        velocity += moved
        np.subtract(joined, rate * (moved + momentum * velocity), out=mean)


def rejoin(outer: Vector, parameters: Vector) -> None:
    """Notes where the replicas are joined now."""
    outer[: len(parameters)] = parameters
