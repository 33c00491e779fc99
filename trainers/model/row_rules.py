"""Optimizers of single rows of an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev
from typing_extensions import override

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.keras_parts import build_optimizer
from syncswitch.trainers.job.sources import Array
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.adam import step_size
from syncswitch.trainers.model.layout import Vector

Slots = Sequence[Vector]  # the optimizer's variables of some rows, each as long as these
Counts = npt.NDArray[np.int32]  # numbers of updates

# An accumulator that has shrunk to this share moves nothing any more.
_NOTHING = 1e-12
_TOLERANCE = 1e-8
_DEGREES = (2, 4, 6, 8, 12, 16, 24, 32)
_FIRST_LENGTH = 1024


class Update(NamedTuple):
    """An update: the number of those before it, its learning rate, and the workload's momentum.

    `own_workers` is the number of workers if each has its own momentum, otherwise 0. Rows are
    not kept by each of them: their momentum here is the mean of what the workers would have. A push
    moves one of them, and so this mean by the n-th part.
    """

    before: int
    rate: float
    momentum: float
    own_workers: int = 0

    def kept_share(self, momentum: float) -> float:
        """Returns the factor of an accumulator in this update."""
        return 1 - (1 - momentum) / (self.own_workers or 1)


class Memory:
    """The effect of updates on rows that had no gradient in them; here there is none.

    An optimizer with momentum moves a parameter even if its gradient is 0. A row is brought up to
    date only when it is wanted, perhaps many updates later, by one multiplication with sums that
    are kept here for each update after which a row may have been left.
    """

    is_empty: ClassVar[bool] = True

    @property
    def updates(self) -> int:
        """The number of updates in it."""
        return 0

    def add(self, update: Update) -> None: ...

    def state(self) -> Array:
        """Copies it, as numbers for `RowRule.memory`."""
        return np.zeros(0)

    def catch_up(self, last: Counts, values: Vector, slots: Slots) -> None:
        """Brings rows [U, d] and their slots up to date from the last update that each knows."""


class _Sums(Memory):
    """A memory with sums: one entry, a row of numbers, for each number of updates from 0 on.

    `newest` is the entry of rows that know all updates.
    """

    is_empty = False

    def __init__(self, state: Array | None, *newest: float) -> None:
        self._newest = newest
        self._entries = np.full((_FIRST_LENGTH, len(newest)), newest, np.float64)
        self._length = 1
        if state is not None:
            self._entries = state.reshape(-1, len(newest)).copy()
            self._length = len(self._entries)

    @property
    @override
    def updates(self) -> int:
        return self._length - 1

    def _append(self) -> None:
        if self._length == len(self._entries):
            self._entries = np.concatenate((self._entries, np.empty_like(self._entries)))
        self._entries[self._length] = self._newest
        self._length += 1

    @override
    def state(self) -> Array:
        return self._entries[: self._length].ravel().copy()


class _MomentumMemory(_Sums):
    """For `accumulator *= factor; values += weight * accumulator`, where both may change.

    An entry has the sum of the weights, each times the factors up to it, and the product of these.
    The accumulator of Keras' momentum (`own`) holds steps, that of the built-in SGD gradients.
    """

    def __init__(self, own: float | None, state: Array | None) -> None:
        super().__init__(state, 0.0, 1.0)
        self._own = own
        self._living = int(np.count_nonzero(self._entries[: self._length, 1] == 0))

    @override
    def add(self, update: Update) -> None:
        momentum, weight = update.momentum, -update.rate
        if self._own is not None:
            momentum, weight = self._own, 1.0
        factor = update.kept_share(momentum)
        if update.own_workers:
            # It acts after the factor, and the accumulator before it counts.
            weight *= momentum**2 / factor if factor else 0.0
        sums, products = self._entries[self._living : self._length].T
        products *= factor
        sums += weight * products
        gone = int(np.count_nonzero(np.abs(products) < _NOTHING))
        products[:gone] = 0.0
        self._living += gone
        self._append()

    @override
    def catch_up(self, last: Counts, values: Vector, slots: Slots) -> None:
        (accumulator,) = slots
        sums, products = self._entries[last].astype(np.float32).T[:, :, None]
        with np.errstate(over="ignore", invalid="ignore"):
            values += sums * accumulator
            accumulator *= products


class _AdamMemory(_Sums):
    """For Adam: `m *= b1; v *= b2; values -= alpha * m / (sqrt(v) + epsilon)`.

    With `s = sqrt(v)` at the start and `w = s / (s + epsilon)` the k-th such update moves a
    parameter by `m / (s + epsilon)` times `alpha_k b1^k / (1 - (1 - b2^(k/2)) w)`. The sum over k
    of the last factor depends on w alone, smoothly, and is kept as a Chebyshev series in `2 w - 1`.
    """

    def __init__(self, rule: AdamRule, state: Array | None) -> None:
        self._rule = rule
        self._weights = _adams_weights(rule.beta_1, rule.beta_2)
        super().__init__(state, *np.zeros(self._weights.shape[1]))

    @override
    def add(self, update: Update) -> None:
        reached = min(len(self._weights), self._length)
        # The nearest entry is the first step away.
        weights = self._weights[reached - 1 :: -1]
        alpha = float(self._rule.alpha(update))
        self._entries[self._length - reached : self._length] += alpha * weights
        self._append()

    @override
    def catch_up(self, last: Counts, values: Vector, slots: Slots) -> None:
        first, second = slots
        missed = (self._length - 1 - last).astype(np.float64)
        series = self._entries[last].astype(np.float32).T[:, :, None]
        epsilon = np.float32(self._rule.epsilon)
        with np.errstate(all="ignore"):
            root = np.sqrt(second)
            whole = root + epsilon
            place = (root - epsilon) / whole
            values -= first / whole * chebyshev.chebval(place, series, tensor=False)
            first *= np.power(self._rule.beta_1, missed).astype(np.float32)[:, None]
            second *= np.power(self._rule.beta_2, missed).astype(np.float32)[:, None]


def _adams_weights(beta_1: float, beta_2: float) -> npt.NDArray[np.float64]:
    """Fits Chebyshev series to `b1^k / (1 - (1 - b2^(k/2)) w)` for all k that matter, from 1 on."""
    most = 1 if beta_1 <= 0 else max(1, int(np.ceil(np.log(_TOLERANCE) / np.log(beta_1))))
    steps = np.arange(1, most + 1, dtype=np.float64)

    def exact(places: Any) -> Any:
        shares = (places[:, None] + 1) / 2
        return beta_1**steps / (1 - (1 - beta_2 ** (steps / 2)) * shares)

    grid = np.linspace(-1, 1, 101)
    wanted = exact(grid)
    for degree in _DEGREES:
        series = chebyshev.chebinterpolate(exact, degree)
        error = chebyshev.chebval(grid, series).T - wanted
        if np.abs(error).sum(axis=1).max() <= _TOLERANCE * wanted.sum(axis=1).max():
            break
    return series.T


class RowRule(msgspec.Struct, frozen=True, tag=True):
    """An optimizer of rows; `slots` are the variables that it keeps for each, from `initial` on."""

    slots: ClassVar[tuple[str, ...]] = ()
    initial = 0.0

    def memory(self, state: Array | None = None) -> Memory:
        """Makes a memory: an empty one, or that of a `Memory.state`."""
        return Memory()

    def apply(self, values: Vector, slots: Slots, gradient: Vector, update: Update) -> None:
        """Applies a gradient to rows that are up to date, in place; all have the shape [U, d]."""
        raise NotImplementedError


class MomentumRule(RowRule, frozen=True, tag=True):
    """SGD with momentum, see `MomentumSGD`."""

    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    @override
    def memory(self, state: Array | None = None) -> Memory:
        return _MomentumMemory(None, state)

    @override
    def apply(self, values: Vector, slots: Slots, gradient: Vector, update: Update) -> None:
        (accumulator,) = slots
        _accumulate(values, accumulator, gradient, update, update.momentum, -update.rate)


def _accumulate(
    values: Vector, accumulator: Vector, step: Vector, update: Update, momentum: float, rate: float
) -> None:
    """Moves rows and their accumulator, in place; `rate` is the factor on both of these."""
    mu, n = np.float32(momentum), update.own_workers
    if n:
        # `MomentumSGD.change`, where the accumulator is the mean of the workers'.
        values += np.float32(rate) * (mu * mu * accumulator + (1 + mu) * step)
        step = step / np.float32(n)
    accumulator *= np.float32(update.kept_share(momentum))
    accumulator += step
    if not n:
        values += np.float32(rate) * accumulator


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
    def memory(self, state: Array | None = None) -> Memory:
        return _MomentumMemory(self.momentum, state)

    @override
    def apply(self, values: Vector, slots: Slots, gradient: Vector, update: Update) -> None:
        (accumulator,) = slots
        step = gradient * -np.float32(update.rate)
        _accumulate(values, accumulator, step, update, self.momentum, 1.0)


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
    def memory(self, state: Array | None = None) -> Memory:
        return _AdamMemory(self, state)

    @override
    def apply(self, values: Vector, slots: Slots, gradient: Vector, update: Update) -> None:
        first, second = slots
        first += (gradient - first) * np.float32(1 - self.beta_1)
        second += (np.square(gradient) - second) * np.float32(1 - self.beta_2)
        values -= first * self.alpha(update) / (np.sqrt(second) + np.float32(self.epsilon))

    def alpha(self, update: Update) -> np.float32:
        """Returns the step size of an update."""
        return step_size(self.beta_1, self.beta_2, update.before + 1, update.rate)


AnyRule = MomentumRule | KerasSGDRule | KerasMomentumRule | AdagradRule | AdamRule
"""The optimizers that a parameter server knows."""

# Each of these acts on more than the rows of a batch, or needs a norm of all.
_OFF = (
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
    "nesterov",
    "amsgrad",
)


def row_rule(workload: Workload) -> AnyRule:
    """Returns the rule by which the workload's optimizer updates rows.

    Raises WorkloadError if it cannot update single rows.
    """
    from keras import optimizers

    if workload.optimizer is None:
        return MomentumRule()
    built = build_optimizer(workload)
    config = built.get_config()
    on = next((name for name in _OFF if config.get(name)), None)
    if on is not None:
        raise _refused(workload, f"{type(built).__name__} with {on} {config[on]}")
    if type(built) is optimizers.SGD:
        momentum = float(config["momentum"])
        return KerasMomentumRule(momentum) if momentum else KerasSGDRule()
    if type(built) is optimizers.Adagrad:
        return AdagradRule(float(config["epsilon"]), float(config["initial_accumulator_value"]))
    if type(built) is optimizers.Adam:
        return AdamRule(*(float(config[name]) for name in ("beta_1", "beta_2", "epsilon")))
    raise _refused(workload, type(built).__name__)


def _refused(workload: Workload, what: Any) -> WorkloadError:
    return workload.error(
        f"the optimizer is {what}, and the model has an Embedding of"
        f" {workload.least_embedding_values:,} values or more, whose rows are trained one by one:"
        " take the built-in SGD, or Keras' SGD, Adagrad or Adam without nesterov, amsgrad, weight"
        " decay, clipping and averages; or set least_embedding_values to None, so that each step"
        " moves all rows"
    )
