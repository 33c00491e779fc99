"""How optimizers update the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import numpy as np
from typing_extensions import override

from syncswitch.trainers.model.embeddings.missed import Counts, MissedAdam, MissedMomentum
from syncswitch.trainers.model.layout import Vector

Slots = Sequence[Vector]
"""What an optimizer remembers of rows, each as long as they are."""


class RowRule(msgspec.Struct, frozen=True, tag=True):
    """An optimizer and its settings; `memory` makes what it has to keep besides slots.

    Attributes:
        slots: Their names.
        initial: Value that slots begin with.
    """

    slots: ClassVar[tuple[str, ...]] = ()
    initial = 0.0

    def memory(self) -> Memory:
        """Of updates that rows have missed, before the first one."""
        return Memory()

    def apply(
        self,
        values: Vector,
        slots: Slots,
        gradient: Vector,
        updates: int,
        rate: float,
        momentum: float,
    ) -> None:
        """Applies a gradient to rows that are up to date, in place.

        Args:
            values: Of the rows, shape [U, d].
            slots: Of the rows.
            gradient: Of the rows.
            updates: Applied before.
            rate: Learning rate.
            momentum: Of SGD as the workload sets it.
        """
        raise NotImplementedError


class Memory:
    """What updates without a gradient have made of rows: nothing at all.

    Attributes:
        is_empty: Whether that is so.
    """

    is_empty: ClassVar[bool] = True

    def add(self, updates: int, rate: float, momentum: float) -> None:
        """Adds an update, after which so many are applied, less one."""

    def copy(self) -> Memory:
        """As it is now."""
        return self

    def catch_up(self, last: Counts, values: Vector, slots: Slots) -> None:
        """Brings rows up to date, in place; `last` counts the updates that were added before."""


class MomentumRule(RowRule, frozen=True, tag=True):
    """SGD with momentum, see `MomentumSGD`."""

    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    @override
    def memory(self) -> Memory:
        return _MomentumMemory(MissedMomentum(), None)

    @override
    def apply(
        self,
        values: Vector,
        slots: Slots,
        gradient: Vector,
        updates: int,
        rate: float,
        momentum: float,
    ) -> None:
        (accumulator,) = slots
        with np.errstate(over="ignore", invalid="ignore"):
            accumulator *= np.float32(momentum)
            accumulator += gradient
            values -= accumulator * np.float32(rate)


class KerasSGDRule(RowRule, frozen=True, tag=True):
    """Keras' SGD without momentum."""

    @override
    def apply(
        self,
        values: Vector,
        slots: Slots,
        gradient: Vector,
        updates: int,
        rate: float,
        momentum: float,
    ) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            values -= gradient * np.float32(rate)


class KerasMomentumRule(RowRule, frozen=True, tag=True):
    """Keras' SGD with a momentum of its own."""

    momentum: float
    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    @override
    def memory(self) -> Memory:
        return _MomentumMemory(MissedMomentum(), self.momentum)

    @override
    def apply(
        self,
        values: Vector,
        slots: Slots,
        gradient: Vector,
        updates: int,
        rate: float,
        momentum: float,
    ) -> None:
        (accumulator,) = slots
        with np.errstate(over="ignore", invalid="ignore"):
            accumulator *= np.float32(self.momentum)
            accumulator -= gradient * np.float32(rate)
            values += accumulator


class AdagradRule(RowRule, frozen=True, tag=True):
    """Keras' Adagrad."""

    epsilon: float
    initial: float
    slots: ClassVar[tuple[str, ...]] = ("accumulator",)

    @override
    def apply(
        self,
        values: Vector,
        slots: Slots,
        gradient: Vector,
        updates: int,
        rate: float,
        momentum: float,
    ) -> None:
        (accumulator,) = slots
        with np.errstate(over="ignore", invalid="ignore"):
            accumulator += np.square(gradient)
            values -= gradient * np.float32(rate) / np.sqrt(accumulator + np.float32(self.epsilon))


class AdamRule(RowRule, frozen=True, tag=True):
    """Keras' Adam."""

    beta_1: float
    beta_2: float
    epsilon: float
    slots: ClassVar[tuple[str, ...]] = ("momentum", "velocity")

    @override
    def memory(self) -> Memory:
        return _AdamMemory(MissedAdam(self.beta_1, self.beta_2, self.epsilon), self)

    @override
    def apply(
        self,
        values: Vector,
        slots: Slots,
        gradient: Vector,
        updates: int,
        rate: float,
        momentum: float,
    ) -> None:
        first, second = slots
        with np.errstate(over="ignore", invalid="ignore"):
            first += (gradient - first) * np.float32(1 - self.beta_1)
            second += (np.square(gradient) - second) * np.float32(1 - self.beta_2)
            whole = np.sqrt(second) + np.float32(self.epsilon)
            values -= first * self.alpha(updates, rate) / whole

    def alpha(self, updates: int, rate: float) -> np.float32:
        """Step size of the update after so many; in float32, as Keras computes it."""
        step, one = np.float32(updates + 1), np.float32(1)
        first, second = (one - np.float32(beta) ** step for beta in (self.beta_1, self.beta_2))
        return np.float32(np.float32(rate) * np.sqrt(second) / first)


AnyRule = MomentumRule | KerasSGDRule | KerasMomentumRule | AdagradRule | AdamRule
"""Those that a parameter server knows."""


class _MomentumMemory(Memory):
    is_empty = False

    def __init__(self, missed: MissedMomentum, own: float | None) -> None:
        self._missed = missed
        self._own = own  # Keras' momentum, which acts on steps, not on gradients

    @override
    def add(self, updates: int, rate: float, momentum: float) -> None:
        if self._own is None:
            self._missed.add(momentum, -rate)
        else:
            self._missed.add(self._own, 1.0)

    @override
    def copy(self) -> Memory:
        return _MomentumMemory(self._missed.copy(), self._own)

    @override
    def catch_up(self, last: Counts, values: Vector, slots: Slots) -> None:
        self._missed.catch_up(last, values, *slots)


class _AdamMemory(Memory):
    is_empty = False

    def __init__(self, missed: MissedAdam, rule: AdamRule) -> None:
        self._missed = missed
        self._rule = rule

    @override
    def add(self, updates: int, rate: float, momentum: float) -> None:
        self._missed.add(float(self._rule.alpha(updates, rate)))

    @override
    def copy(self) -> Memory:
        return _AdamMemory(self._missed.copy(), self._rule)

    @override
    def catch_up(self, last: Counts, values: Vector, slots: Slots) -> None:
        self._missed.catch_up(last, values, *slots)
