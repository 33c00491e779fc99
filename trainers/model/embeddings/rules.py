"""How optimizers update the rows of an embedding."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev
from typing_extensions import override

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.keras_parts import build_optimizer
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.layout import Vector

Slots = Sequence[Vector]
"""The optimizer's variables of rows, each as long as they are."""

Counts = npt.NDArray[np.int32]
"""Numbers of updates."""

# What is left of an accumulator moves nothing any more.
_NOTHING = 1e-12
_TOLERANCE = 1e-8
_DEGREES = (2, 4, 6, 8, 12, 16, 24, 32)
_FIRST_LENGTH = 1024


class Update(NamedTuple):
    """The settings of one update.

    Attributes:
        before: Number of updates applied before it.
        rate: Learning rate.
        momentum: Momentum of SGD as the workload sets it.
    """

    before: int
    rate: float
    momentum: float


class Memory:
    """The movement of rows by updates that had no gradient for them; here there is none.

    An optimizer with a momentum moves a parameter also when its gradient is 0. A row is brought up
    to date only when somebody wants it, however many updates later, by one multiplication with
    what was added up here at each update. An entry belongs to the rows that were last up to date
    at that update.

    Attributes:
        is_empty: Whether such updates never move a row.
    """

    is_empty: ClassVar[bool] = True

    def add(self, update: Update) -> None:
        """Adds an update."""

    def copy(self) -> Memory:
        """A copy that later updates do not change."""
        return self

    def catch_up(self, last: Counts, values: Vector, slots: Slots) -> None:
        """Brings rows up to date, in place.

        Args:
            last: Number of updates that each row already knows.
            values: Values of the rows, shape [U, d].
            slots: The optimizer's variables of the rows.
        """


class _MomentumMemory(Memory):
    """For `accumulator *= factor; values += weight * accumulator`, where both may change."""

    is_empty = False

    def __init__(self, own: float | None) -> None:
        self._own = own  # Keras' momentum, which acts on steps, not on gradients
        # By entry: the sum of weights, each times the factors up to it, and the product of these.
        self._sums, self._products = np.zeros(_FIRST_LENGTH), np.ones(_FIRST_LENGTH)
        self._length, self._living = 1, 0

    @override
    def add(self, update: Update) -> None:
        factor, weight = (update.momentum, -update.rate) if self._own is None else (self._own, 1.0)
        living = slice(self._living, self._length)
        products = self._products[living]
        products *= factor
        self._sums[living] += weight * products
        gone = int(np.count_nonzero(np.abs(products) < _NOTHING))
        products[:gone] = 0.0
        self._living += gone
        self._sums = _longer(self._length, self._sums)
        self._products = _longer(self._length, self._products)
        self._sums[self._length], self._products[self._length] = 0.0, 1.0
        self._length += 1

    @override
    def copy(self) -> Memory:
        copied = copy.copy(self)
        copied._sums = self._sums[: self._length].copy()
        copied._products = self._products[: self._length].copy()
        return copied

    @override
    def catch_up(self, last: Counts, values: Vector, slots: Slots) -> None:
        (accumulator,) = slots
        with np.errstate(over="ignore", invalid="ignore"):
            values += self._sums[last].astype(np.float32)[:, None] * accumulator
            accumulator *= self._products[last].astype(np.float32)[:, None]


class _AdamMemory(Memory):
    """For Adam: `m *= b1; v *= b2; values -= alpha * m / (sqrt(v) + epsilon)`.

    With `s = sqrt(v)` at the start and `w = s / (s + epsilon)` the k-th such update moves a
    parameter by `m / (s + epsilon)` times `alpha_k b1^k / (1 - (1 - b2^(k/2)) w)`. The sum over k
    of the last factor depends on w alone, smoothly, and is kept as a Chebyshev series in `2 w - 1`.
    """

    is_empty = False

    def __init__(self, rule: AdamRule) -> None:
        self._rule = rule
        self._weights = _adams_weights(rule.beta_1, rule.beta_2)
        self._series = np.zeros((_FIRST_LENGTH, self._weights.shape[1]))
        self._length = 1

    @override
    def add(self, update: Update) -> None:
        reached = min(len(self._weights), self._length)
        # The nearest entry is the first step away.
        weights = self._weights[reached - 1 :: -1]
        alpha = float(self._rule.alpha(update))
        self._series[self._length - reached : self._length] += alpha * weights
        self._series = _longer(self._length, self._series)
        self._series[self._length] = 0.0
        self._length += 1

    @override
    def copy(self) -> Memory:
        copied = copy.copy(self)
        copied._series = self._series[: self._length].copy()
        return copied

    @override
    def catch_up(self, last: Counts, values: Vector, slots: Slots) -> None:
        first, second = slots
        missed = (self._length - 1 - last).astype(np.float64)
        series = self._series[last].astype(np.float32)
        epsilon = np.float32(self._rule.epsilon)
        with np.errstate(all="ignore"):
            root = np.sqrt(second)
            whole = root + epsilon
            values -= first / whole * _series_at(series, (root - epsilon) / whole)
            first *= np.power(self._rule.beta_1, missed).astype(np.float32)[:, None]
            second *= np.power(self._rule.beta_2, missed).astype(np.float32)[:, None]


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


def _longer(length: int, entries: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The same entries with room for one more."""
    if length < len(entries):
        return entries
    return np.concatenate((entries, np.zeros((max(length, _FIRST_LENGTH), *entries.shape[1:]))))


class RowRule(msgspec.Struct, frozen=True, tag=True):
    """An optimizer of rows and its settings.

    Attributes:
        slots: Names of its variables.
        initial: Value with which they begin.
    """

    slots: ClassVar[tuple[str, ...]] = ()
    initial = 0.0

    def memory(self) -> Memory:
        """A memory without any update."""
        return Memory()

    def apply(self, values: Vector, slots: Slots, gradient: Vector, update: Update) -> None:
        """Applies a gradient to rows that are up to date, in place; all have the shape [U, d]."""
        raise NotImplementedError


class MomentumRule(RowRule, frozen=True, tag=True):
    """SGD with momentum, see `MomentumSGD`."""

    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    @override
    def memory(self) -> Memory:
        return _MomentumMemory(None)

    @override
    def apply(self, values: Vector, slots: Slots, gradient: Vector, update: Update) -> None:
        (accumulator,) = slots
        accumulator *= np.float32(update.momentum)
        accumulator += gradient
        values -= accumulator * np.float32(update.rate)


class KerasSGDRule(RowRule, frozen=True, tag=True):
    """Keras' SGD without momentum."""

    @override
    def apply(self, values: Vector, slots: Slots, gradient: Vector, update: Update) -> None:
        values -= gradient * np.float32(update.rate)


class KerasMomentumRule(RowRule, frozen=True, tag=True):
    """Keras' SGD with a momentum of its own."""

    momentum: float
    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    @override
    def memory(self) -> Memory:
        return _MomentumMemory(self.momentum)

    @override
    def apply(self, values: Vector, slots: Slots, gradient: Vector, update: Update) -> None:
        (accumulator,) = slots
        accumulator *= np.float32(self.momentum)
        accumulator -= gradient * np.float32(update.rate)
        values += accumulator


class AdagradRule(RowRule, frozen=True, tag=True):
    """Keras' Adagrad."""

    epsilon: float
    initial: float
    slots: ClassVar[tuple[str, ...]] = ("accumulator",)

    @override
    def apply(self, values: Vector, slots: Slots, gradient: Vector, update: Update) -> None:
        (accumulator,) = slots
        accumulator += np.square(gradient)
        root = np.sqrt(accumulator + np.float32(self.epsilon))
        values -= gradient * np.float32(update.rate) / root


class AdamRule(RowRule, frozen=True, tag=True):
    """Keras' Adam."""

    beta_1: float
    beta_2: float
    epsilon: float
    slots: ClassVar[tuple[str, ...]] = ("momentum", "velocity")

    @override
    def memory(self) -> Memory:
        return _AdamMemory(self)

    @override
    def apply(self, values: Vector, slots: Slots, gradient: Vector, update: Update) -> None:
        first, second = slots
        first += (gradient - first) * np.float32(1 - self.beta_1)
        second += (np.square(gradient) - second) * np.float32(1 - self.beta_2)
        values -= first * self.alpha(update) / (np.sqrt(second) + np.float32(self.epsilon))

    def alpha(self, update: Update) -> np.float32:
        """Step size of an update; in float32, as Keras computes it."""
        step, one = np.float32(update.before + 1), np.float32(1)
        first, second = (one - np.float32(beta) ** step for beta in (self.beta_1, self.beta_2))
        return np.float32(np.float32(update.rate) * np.sqrt(second) / first)


AnyRule = MomentumRule | KerasSGDRule | KerasMomentumRule | AdagradRule | AdamRule
"""The rules that a parameter server knows."""

# Each acts on more than the rows that a batch has used, or on a norm of all.
_OFF = {
    "weight_decay": None,
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "use_ema": False,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
    "nesterov": False,
    "amsgrad": False,
}


def row_rule(workload: Workload) -> AnyRule:
    """The rule by which the workload's optimizer updates rows.

    Raises:
        WorkloadError: It cannot update them alone.
    """
    from keras import optimizers

    if workload.optimizer is None:
        return MomentumRule()
    built = build_optimizer(workload)
    config = built.get_config()
    on = [name for name, off in _OFF.items() if config.get(name, off) not in (off, None, 0.0)]
    if on:
        raise _refused(workload, f"{type(built).__name__} with {on[0]} {config[on[0]]}")
    if type(built) is optimizers.SGD:
        momentum = float(config["momentum"])
        return KerasMomentumRule(momentum) if momentum else KerasSGDRule()
    if type(built) is optimizers.Adagrad:
        return AdagradRule(float(config["epsilon"]), float(config["initial_accumulator_value"]))
    if type(built) is optimizers.Adam:
        return AdamRule(*(float(config[name]) for name in ("beta_1", "beta_2", "epsilon")))
    raise _refused(workload, type(built).__name__)


def _refused(workload: Workload, what: Any) -> WorkloadError:
    return WorkloadError(
        f"workload {workload.name!r}: the optimizer is {what}, and the model has an Embedding of"
        f" {workload.least_embedding_values:,} values or more, of which steps move single rows:"
        " take the built-in SGD, or Keras' SGD, Adagrad or Adam without nesterov, amsgrad, weight"
        " decay, clipping and averages; or set least_embedding_values to None, so that each step"
        " moves all"
    )
