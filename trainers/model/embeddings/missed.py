"""What updates without a gradient make of a row, added up, for rows that were left alone.

An optimizer with a memory moves a parameter also when its gradient is 0. A table's rows are brought
up to date only when somebody wants them, however many updates later, by one multiplication with
what is added up here at each update. An entry belongs to the rows that were last up to date at that
update.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev

from syncswitch.trainers.model.layout import Vector

Counts = npt.NDArray[np.int32]
"""Of updates."""

# What is left of an accumulator moves nothing any more.
_NOTHING = 1e-12
_TOLERANCE = 1e-8
_DEGREES = (2, 4, 6, 8, 12, 16, 24, 32)
_FIRST_LENGTH = 1024


class MissedMomentum:
    """For `accumulator *= factor; parameters += weight * accumulator`, both of which may change."""

    def __init__(self) -> None:
        # By entry: the sum of weights, each times the factors up to it, and the product of these.
        self._sums, self._products = np.zeros(_FIRST_LENGTH), np.ones(_FIRST_LENGTH)
        self._length, self._living = 1, 0

    def add(self, factor: float, weight: float) -> None:
        """Adds an update."""
        living = slice(self._living, self._length)
        products = self._products[living]
        products *= factor
        self._sums[living] += weight * products
        gone = int(np.count_nonzero(np.abs(products) < _NOTHING))
        products[:gone] = 0.0
        self._living += gone
        self._sums, self._products = _longer(self._length, self._sums, self._products)
        self._sums[self._length], self._products[self._length] = 0.0, 1.0
        self._length += 1

    def copy(self) -> MissedMomentum:
        """As it is now."""
        copied = MissedMomentum()
        copied._sums = self._sums[: self._length].copy()
        copied._products = self._products[: self._length].copy()
        copied._length, copied._living = self._length, self._living
        return copied

    def catch_up(self, last: Counts, values: Vector, accumulator: Vector) -> None:
        """Brings rows up to date, in place.

        Args:
            last: Entry of each row.
            values: Of the rows.
            accumulator: Likewise.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            values += self._sums[last].astype(np.float32)[:, None] * accumulator
            accumulator *= self._products[last].astype(np.float32)[:, None]


class MissedAdam:
    """For Adam: `m *= b1; v *= b2; parameters -= alpha * m / (sqrt(v) + epsilon)`.

    With `s = sqrt(v)` at the start and `w = s / (s + epsilon)` the k-th such update moves a
    parameter by `m / (s + epsilon)` times `alpha_k b1^k / (1 - (1 - b2^(k/2)) w)`. The sum over k
    of the last factor depends on w alone, smoothly, and is kept as a Chebyshev series in `2 w - 1`.
    """

    def __init__(self, beta_1: float, beta_2: float, epsilon: float) -> None:
        self._betas, self._epsilon = (beta_1, beta_2), epsilon
        self._weights = _adams_weights(beta_1, beta_2)
        self._series = np.zeros((_FIRST_LENGTH, self._weights.shape[1]))
        self._length = 1

    def add(self, alpha: float) -> None:
        """Adds an update."""
        reached = min(len(self._weights), self._length)
        # The nearest entry is the first step away.
        self._series[self._length - reached : self._length] += (
            alpha * self._weights[reached - 1 :: -1]
        )
        (self._series,) = _longer(self._length, self._series)
        self._series[self._length] = 0.0
        self._length += 1

    def copy(self) -> MissedAdam:
        """As it is now."""
        copied = object.__new__(MissedAdam)
        copied._betas, copied._epsilon, copied._weights = self._betas, self._epsilon, self._weights
        copied._series, copied._length = self._series[: self._length].copy(), self._length
        return copied

    def catch_up(self, last: Counts, values: Vector, momentum: Vector, velocity: Vector) -> None:
        """Brings rows up to date, in place; see `MissedMomentum.catch_up`."""
        missed = (self._length - 1 - last).astype(np.float64)
        series = self._series[last].astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            root = np.sqrt(velocity)
            whole = root + np.float32(self._epsilon)
            place = (root - np.float32(self._epsilon)) / whole
            values -= momentum / whole * _series_at(series, place)
            for slot, beta in zip((momentum, velocity), self._betas, strict=True):
                slot *= np.power(beta, missed).astype(np.float32)[:, None]


def _series_at(series: Vector, place: Vector) -> Vector:
    """Sums of Chebyshev series, one for each row, at places in [-1, 1]; Clenshaw's recursion."""
    later = np.zeros_like(place)
    latest = np.zeros_like(place)
    for number in range(series.shape[1] - 1, 0, -1):
        later, latest = series[:, number, None] + 2 * place * later - latest, later
    total: Vector = series[:, 0, None] + place * later - latest
    return total


def _adams_weights(beta_1: float, beta_2: float) -> npt.NDArray[np.float64]:
    """Chebyshev series of `b1^k / (1 - (1 - b2^(k/2)) w)`, for k from 1 until nothing is left."""
    most = 1 if beta_1 <= 0 else max(1, int(np.ceil(np.log(_TOLERANCE) / np.log(beta_1))))
    steps = np.arange(1, most + 1, dtype=np.float64)[:, None]

    def exact(place: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        share = (place + 1) / 2
        return beta_1**steps / (1 - (1 - beta_2 ** (steps / 2)) * share)

    grid = np.linspace(-1, 1, 101)[None, :]
    wanted = exact(grid)
    for degree in _DEGREES:
        nodes = chebyshev.chebpts1(degree + 1)
        found = exact(nodes[None, :]) @ chebyshev.chebvander(nodes, degree)
        series = found * (2 / (degree + 1))
        series[:, 0] /= 2
        error = series @ chebyshev.chebvander(grid[0], degree).T - wanted
        if np.abs(error).sum(axis=0).max() <= _TOLERANCE * wanted.sum(axis=0).max():
            break
    return series


def _longer(length: int, *arrays: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], ...]:
    """The same arrays with room for one more entry."""
    if length < len(arrays[0]):
        return arrays
    return tuple(
        np.concatenate((one, np.zeros((max(length, _FIRST_LENGTH), *one.shape[1:]))))
        for one in arrays
    )
