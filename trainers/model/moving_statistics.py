"""How a batch moves the statistics of a model, such as BatchNorm's moving means and variances.

An exponential moving average is `s <- m s + (1 - m) x`, with x from the batch. Whoever holds the
statistics has to move their present values: a worker that sends the difference to what it pulled
makes of it a recursion with a delay, `s <- s + (1 - m)(x - s_pulled)`, which with a staleness of t
updates is stable only for `1 - m < 2 cos(t pi / (2 t + 1))`: with m = 0.9 up to some 16 workers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from syncswitch.trainers.model.layout import Vector

_FACTORS = (8.0, 512.0)
_DECIMALS = 6
_TOLERANCE = 1e-5


def decay_of(move: Callable[[Vector], Vector], start: Vector) -> Vector:
    """The factor m by which a batch multiplies what each value was, in `s <- m s + c`.

    It is measured, by moving other values with the same batch, and so holds for layers of any
    kind: for an exponential moving average m is its momentum, for a sum or a constant 1, for what
    follows from other variables alone 0. A value that moves in another way (by a maximum, or a
    power iteration) gets 0 as well: it is what the last worker made of what it had pulled. That is
    bounded however stale it was, but what others did meanwhile is lost.

    Args:
        move: One batch's update: the statistics after it by those before it.
        start: Statistics to begin with, shape [S].

    Returns:
        m of each value, shape [S].
    """
    decay = np.zeros(start.size, np.float32)
    moved = move(start).astype(np.float64)
    unknown = np.ones(start.size, bool)
    random = np.random.default_rng(0)
    while unknown.any():
        # Each value up and down; one of the two twice, so that chance does not agree.
        direction = unknown * random.choice([-1.0, 1.0], start.size)
        slopes = np.stack(
            [_slope(move, start, moved, one, random) for one in (direction, -direction, direction)]
        )
        with np.errstate(invalid="ignore"):
            found = unknown & (np.ptp(slopes, axis=0) < _TOLERANCE)
        if not found.any():
            break
        decay[found] = np.round(np.median(slopes[:, found], axis=0), _DECIMALS)
        # What is known stays as it was from here on: others may depend on it.
        unknown &= ~found
    return decay


def _slope(
    move: Callable[[Vector], Vector],
    start: Vector,
    moved: npt.NDArray[np.float64],
    direction: npt.NDArray[np.float64],
    random: np.random.Generator,
) -> npt.NDArray[np.float64]:
    """Change of each value's end over the change of its start, where `direction` is not 0."""
    # So far that rounding does not matter, and no two as far.
    factors = random.uniform(*_FACTORS, start.size)
    values = (start + direction * factors * (1 + np.abs(start) + np.abs(moved))).astype(np.float32)
    with np.errstate(all="ignore"):
        slope: npt.NDArray[np.float64] = (move(values) - moved) / (values.astype(float) - start)
    return slope
