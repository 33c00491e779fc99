"""Optimizers that update the flat parameters on the parameter server without losing an update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.cluster.layout import FlatLayout, Vector, assign
from syncswitch.trainers.cluster.tensorflow_api import tf

__all__ = ["FlatOptimizer", "FusedMomentum", "KerasOptimizer", "pack", "unpack"]


class FlatOptimizer(ABC):
    """Applies a flat gradient to flat parameters, atomically among concurrent workers.

    Made under the parameter server's device, where its own variables (slots) live.

    Attributes:
        layout: Of the slots.
    """

    layout: FlatLayout

    @abstractmethod
    def initial_slots(self) -> Vector:
        """Fresh slots."""

    @abstractmethod
    def load(self, parameters: Any, slots: Any, updates: Any) -> None:
        """Traces taking over a state, given as tensors.

        The flat parameters and the count of updates themselves are loaded by their owner.
        """

    @abstractmethod
    def slots(self) -> Vector:
        """Copies the slots."""

    @abstractmethod
    def apply(self, gradient: Any, rate: Any, momentum: Any) -> Any:
        """Traces one update and its count; called under the parameter server's device.

        Args:
            gradient: Tensor, shape [P].
            rate: Scalar tensor, the learning rate.
            momentum: Scalar tensor; an optimizer without momentum ignores it.

        Returns:
            Int64 scalar: updates applied, this one included; known only after it is applied.
        """


class FusedMomentum(FlatOptimizer):
    """SGD with momentum in TensorFlow's fused operation, whose lock makes it atomic.

    `accumulator = momentum * accumulator + gradient; parameters -= rate * accumulator`, so that a
    changed rate acts on the whole accumulator at once (as in the paper's TensorFlow).
    """

    def __init__(self, layout: FlatLayout, parameters: Any, updates: Any) -> None:
        self.layout = FlatLayout(tuple(f"momentum/{name}" for name in layout.names), layout.shapes)
        self._parameters = parameters
        self._updates = updates
        self._accumulator = tf.Variable(tf.zeros(layout.size), name="momentum")

    def initial_slots(self) -> Vector:
        """Zeros."""
        return np.zeros(self.layout.size, np.float32)

    def load(self, parameters: Any, slots: Any, updates: Any) -> None:
        """See `FlatOptimizer.load`."""
        self._accumulator.assign(slots)

    def slots(self) -> Vector:
        """See `FlatOptimizer.slots`."""
        accumulator: Vector = self._accumulator.numpy()
        return accumulator

    def apply(self, gradient: Any, rate: Any, momentum: Any) -> Any:
        """See `FlatOptimizer.apply`."""
        applied = tf.raw_ops.ResourceApplyMomentum(
            var=self._parameters.handle,
            accum=self._accumulator.handle,
            lr=rate,
            grad=gradient,
            momentum=momentum,
            use_locking=True,
            use_nesterov=False,
        )
        with tf.control_dependencies([applied]):
            return self._updates.assign_add(1)


class KerasOptimizer(FlatOptimizer):
    """Any Keras optimizer, inside a critical section on the parameter server.

    Keras's own `apply` loses updates of concurrent workers: it reads a slot, computes, and writes.
    It needs variables of its own shape, so here those are the truth and the flat vector that
    workers pull is written from them in the same section.
    """

    def __init__(
        self,
        optimizer: Any,
        variables: Sequence[Any],
        variables_layout: FlatLayout,
        parameters: Any,
        updates: Any,
    ) -> None:
        """Builds a Keras optimizer for `variables`, which it then owns."""
        self._optimizer = optimizer
        try:
            self._optimizer.build(variables)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise WorkloadError(
                f"workload: {type(self._optimizer).__name__} cannot be built for this model "
                f"({error}); give another Keras optimizer"
            ) from error
        self._variables = variables
        self._variables_layout = variables_layout
        self._parameters = parameters
        self._updates = updates
        counters = (self._optimizer.iterations, self._optimizer.learning_rate)
        self._slot_variables = [
            variable
            for variable in self._optimizer.variables
            if not any(variable is counter for counter in counters)
        ]
        layout = FlatLayout.of(self._slot_variables, "optimizer variable")
        # Keras puts the names of layers, which are counted up in a process, before a slot's own.
        names = tuple(f"{name[:4]}{name.rpartition('_')[2]}" for name in layout.names)
        self.layout = FlatLayout(names, layout.shapes)
        self._initial = self.slots()
        self._section = tf.CriticalSection()

    def initial_slots(self) -> Vector:
        """As the optimizer builds them."""
        return self._initial.copy()

    def load(self, parameters: Any, slots: Any, updates: Any) -> None:
        """See `FlatOptimizer.load`."""
        assign(self._variables, unpack(parameters, self._variables_layout))
        assign(self._slot_variables, unpack(slots, self.layout))
        self._optimizer.iterations.assign(tf.cast(updates, self._optimizer.iterations.dtype))

    def slots(self) -> Vector:
        """See `FlatOptimizer.slots`."""
        return self.layout.pack([variable.numpy() for variable in self._slot_variables])

    def apply(self, gradient: Any, rate: Any, momentum: Any) -> Any:
        """See `FlatOptimizer.apply`."""
        # As an inner function: what is traced beside it would run outside the section.
        update = tf.function(self._update, autograph=False)
        return self._section.execute(lambda: update(gradient, rate))

    def _update(self, gradient: Any, rate: Any) -> Any:
        self._optimizer.learning_rate.assign(rate)
        self._optimizer.apply(unpack(gradient, self._variables_layout), self._variables)
        # Functions run stateful operations in the order in which they were traced.
        self._parameters.assign(pack([variable.value for variable in self._variables]))
        return self._updates.assign_add(1)


def unpack(flat: Any, layout: FlatLayout) -> list[Any]:
    """Cuts a flat tensor into tensors of the layout's shapes."""
    parts = tf.split(flat, layout.sizes) if layout.shapes else []
    return [tf.reshape(part, shape) for part, shape in zip(parts, layout.shapes, strict=True)]


def pack(values: Sequence[Any]) -> Any:
    """Joins tensors to a flat one."""
    if not values:
        return tf.zeros([0])
    return tf.concat([tf.reshape(value, [-1]) for value in values], 0)
