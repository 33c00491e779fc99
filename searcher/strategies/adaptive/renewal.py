"""New guesses where few of the first are left: tempered resampling with moves in the unit cube.

The evidence is let in little by little. At each step guesses are drawn again by what they gained in
weight, and then each walks a little (Metropolis), so that copies of one become different guesses.
After Chopin (2002), "A sequential particle filter method for static models".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from syncswitch.searcher.strategies.adaptive.guesses import Floats

_SEED = 20_260_722
# A step lets in so much that this share of the guesses stays effective.
_EFFECTIVE_SHARE = 0.5
_MOVES = 4
# Of equal weight these say more than most of the first ones ever do.
_GUESSES = 1024
_MOST_STEPS = 40
# Of a guess's numbers, those that change in a move; of the moves, those that go anywhere.
_CHANGED = 0.3
_ANYWHERE = 0.15


def effective_size(weights: Floats) -> float:
    """How many guesses of equal weight say as much as these, whose weights sum to 1."""
    return 1.0 / float(np.einsum("p,p->", weights, weights))


def renewed(
    cube: Floats, log_weights_at: Callable[[Floats], Floats], log_weights: Floats
) -> Floats:
    """Guesses of equal weight, as likely as the evidence says; the same at every call.

    Args:
        cube: (P, d) the first ones, even over the unit cube.
        log_weights_at: (P,) logarithm of the likelihood of (P, d) points.
        log_weights: Of the first ones.

    Returns:
        (P, d) points, none of much weight of its own.
    """
    chance = np.random.default_rng(_SEED)
    share = 0.0
    for _ in range(_MOST_STEPS):
        step = _next_step(log_weights, 1.0 - share)
        share += step
        chosen = _resampled(log_weights, step)
        cube, log_weights = cube[chosen], log_weights[chosen]
        for _ in range(_MOVES):
            cube, log_weights = _moved(cube, log_weights, log_weights_at, share, chance)
        if share >= 1.0:
            break
    return cube


def _next_step(log_weights: Floats, most: float) -> float:
    """The largest part of the evidence that leaves enough of the guesses effective."""
    if _effective_after(log_weights, most) >= _EFFECTIVE_SHARE:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        if _effective_after(log_weights, middle) >= _EFFECTIVE_SHARE:
            low = middle
        else:
            high = middle
    return high


def _effective_after(log_weights: Floats, step: float) -> float:
    weights = _weights(log_weights, step)
    return effective_size(weights) / len(weights)


def _weights(log_weights: Floats, step: float) -> Floats:
    weights: Floats = np.exp(step * (log_weights - log_weights.max()))
    weights /= weights.sum()
    return weights


def _resampled(log_weights: Floats, step: float) -> np.typing.NDArray[np.intp]:
    places = (np.arange(_GUESSES) + 0.5) / _GUESSES
    ends = np.cumsum(_weights(log_weights, step))
    return np.searchsorted(ends, places).clip(0, len(log_weights) - 1)


def _moved(
    cube: Floats,
    log_weights: Floats,
    log_weights_at: Callable[[Floats], Floats],
    share: float,
    chance: np.random.Generator,
) -> tuple[Floats, Floats]:
    """One Metropolis move of every guess, under the evidence let in so far."""
    number, dimensions = cube.shape
    # Differences of two other guesses have the scale and the shape of what is likely.
    one, other = cube[chance.permutation(number)], cube[chance.permutation(number)]
    length = chance.choice([0.1, 0.4, 1.0], (number, 1))
    changes = chance.random((number, dimensions)) < _CHANGED
    steps = length * (one - other) + 1e-3 * chance.standard_normal((number, dimensions))
    proposed = _folded(cube + changes * steps)
    anywhere = chance.random((number, dimensions)) < 1.5 / dimensions
    is_anywhere = chance.random((number, 1)) < _ANYWHERE
    drawn = chance.random((number, dimensions))
    proposed = np.where(is_anywhere, np.where(anywhere, drawn, cube), proposed)
    found = log_weights_at(proposed)
    is_taken = np.log(chance.random(number)) < share * (found - log_weights)
    return np.where(is_taken[:, None], proposed, cube), np.where(is_taken, found, log_weights)


def _folded(points: Floats) -> Floats:
    """Back into the unit cube, as if its walls were mirrors."""
    folded: Floats = 1.0 - np.abs(1.0 - np.mod(points, 2.0))
    return folded
