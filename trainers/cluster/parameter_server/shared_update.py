"""Atomic updates of the parameter server's state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from syncswitch.trainers.model.optimizer import MomentumSGD, Optimizer
from syncswitch.trainers.model.tensorflow_api import tf


@dataclass(frozen=True)
class SharedState:
    """The variables of a parameter server, made under its device.

    Attributes:
        parameters: Shape [P].
        slots: Of the optimizer, shape [slots].
        statistics: Shape [S].
        updates: Int64 scalar, updates applied.
    """

    parameters: Any
    slots: Any
    statistics: Any
    updates: Any


class SharedUpdate(ABC):
    """Applies a gradient atomically."""

    @abstractmethod
    def apply(self, gradient: Any, rate: Any, momentum: Any) -> Any:
        """Traces one update and its count; called under the parameter server's device.

        Args:
            gradient: Tensor, shape [P].
            rate: Scalar tensor, the learning rate.
            momentum: Scalar tensor.

        Returns:
            Int64 scalar: updates applied, this one included; known only after it is applied.
        """


class FusedMomentum(SharedUpdate):
    """`MomentumSGD` in TensorFlow's fused operation, whose lock makes it atomic."""

    def __init__(self, state: SharedState) -> None:
        self._state = state

    @override
    def apply(self, gradient: Any, rate: Any, momentum: Any) -> Any:
        applied = tf.raw_ops.ResourceApplyMomentum(
            var=self._state.parameters.handle,
            accum=self._state.slots.handle,
            lr=rate,
            grad=gradient,
            momentum=momentum,
            use_locking=True,
            use_nesterov=False,
        )
        with tf.control_dependencies([applied]):
            return self._state.updates.assign_add(1)


class CriticalUpdate(SharedUpdate):
    """Any optimizer, inside a critical section.

    Without it updates are lost: an optimizer reads a slot, computes, and writes.
    """

    def __init__(self, optimizer: Optimizer, state: SharedState) -> None:
        self._optimizer = optimizer
        self._state = state
        self._section = tf.CriticalSection()

    @override
    def apply(self, gradient: Any, rate: Any, momentum: Any) -> Any:
        # As an inner function: what is traced beside it would run outside the section.
        update = tf.function(self._update, autograph=False)
        return self._section.execute(lambda: update(gradient, rate, momentum))

    def _update(self, gradient: Any, rate: Any, momentum: Any) -> Any:
        state = self._state
        parameters, slots = self._optimizer.apply(
            state.parameters.read_value(),
            state.slots.read_value(),
            state.updates.read_value(),
            gradient,
            rate,
            momentum,
        )
        # Functions run stateful operations in the order in which they were traced.
        state.parameters.assign(parameters)
        state.slots.assign(slots)
        return state.updates.assign_add(1)


class SharedStatistics:
    """Moves the statistics atomically; made under the parameter server's device.

    Args:
        variable: The statistics, shape [S].
        move: What a batch makes of their present values (`ModelFunction.move`).
    """

    def __init__(self, variable: Any, move: Callable[[Any, Any], Any]) -> None:
        self._variable = variable
        self._move = move
        self._section = tf.CriticalSection()

    def apply(self, contribution: Any) -> Any:
        """Traces one move; called under the parameter server's device.

        Args:
            contribution: Of a batch, or the mean over those of a round, shape [S].

        Returns:
            To depend on: known only after it is applied.
        """
        # As an inner function: see `CriticalUpdate`.
        moved = tf.function(self._moved, autograph=False)
        return self._section.execute(lambda: moved(contribution))

    def _moved(self, contribution: Any) -> Any:
        self._variable.assign(self._move(self._variable.read_value(), contribution))
        return tf.constant(True)


def make_shared_update(optimizer: Optimizer, state: SharedState) -> SharedUpdate:
    """The fastest atomic update with this optimizer."""
    if isinstance(optimizer, MomentumSGD):
        return FusedMomentum(state)
    return CriticalUpdate(optimizer, state)
