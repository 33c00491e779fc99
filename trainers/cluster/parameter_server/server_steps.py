"""What is computed in the steps of a cluster, on the state that its parameter server holds."""

from __future__ import annotations

from typing import Any

from syncswitch.trainers.cluster.parameter_server.shared_update import (
    SharedState,
    SharedStatistics,
    make_shared_update,
)
from syncswitch.trainers.cluster.servers.placement import Devices
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.optimizer import Optimizer
from syncswitch.trainers.model.tensorflow_api import tf


class ServerSteps:
    """The state on a parameter server, and bodies of functions to be traced.

    Args:
        function: What a worker computes.
        optimizer: Applies it; made under the parameter server's device, as this has to be.
        devices: Of the cluster.

    Attributes:
        state: On the parameter server.
        gradient_slots: A variable for each worker: a sum in arrival order would not be repeatable.
        push_counts: Of each worker, updates that it pushed: was one applied that it did not live to
            acknowledge?
    """

    def __init__(self, function: ModelFunction, optimizer: Optimizer, devices: Devices) -> None:
        self._function = function
        self._devices = devices
        P, S = function.parameters.size, function.statistics.size
        self.state = SharedState(
            tf.Variable(tf.zeros(P), name="parameters"),
            tf.Variable(tf.zeros(optimizer.layout.size), name="slots"),
            tf.Variable(tf.zeros(S), name="statistics"),
            tf.Variable(tf.zeros([], tf.int64), name="updates"),
        )
        self._update = make_shared_update(optimizer, self.state)
        self._statistics = SharedStatistics(self.state.statistics, function.move)
        workers = range(len(devices.workers))
        self.gradient_slots = [
            tf.Variable(tf.zeros(P + S + 1), name=f"gradient_{worker}") for worker in workers
        ]
        self.push_counts = [
            tf.Variable(tf.zeros([], tf.int64), name=f"pushes_{worker}") for worker in workers
        ]

    def load(self, parameters: Any, slots: Any, statistics: Any, updates: Any) -> Any:
        """Overwrites the state; the updates that it has by then."""
        with tf.device(self._devices.parameter_server):
            # Functions run stateful operations in the order in which they were traced.
            self.state.parameters.assign(parameters)
            self.state.slots.assign(slots)
            self.state.statistics.assign(statistics)
            self.state.updates.assign(updates)
            for count in self.push_counts:
                count.assign(tf.zeros([], tf.int64))
            return self.state.updates.read_value()

    def copy(self) -> Any:
        """Copies of parameters, statistics and number of updates."""
        with tf.device(self._devices.parameter_server):
            state = self.state
            copied = (state.parameters, state.statistics, state.updates)
            return [tf.identity(variable.read_value()) for variable in copied]

    def step_and_apply(
        self, inputs: Any, labels: Any, step_and_seed: Any, hyper_parameters: Any, count: Any
    ) -> Any:
        """A whole worker-step whose update is applied at once; its acknowledgement."""
        pulled, computed = self._compute(inputs, labels, step_and_seed)
        return self.apply(pulled, computed, hyper_parameters, count)

    def step_to_slot(self, inputs: Any, labels: Any, step_and_seed: Any, slot: Any) -> Any:
        """A whole worker-step whose gradient waits for a round; its acknowledgement."""
        pulled, computed = self._compute(inputs, labels, step_and_seed)
        return self.fill_slot(pulled, computed, slot)

    def compute(self, inputs: Any, labels: Any, step_and_seed: Any) -> Any:
        """The first half of a worker-step: updates at the pull, what was computed, and the loss."""
        pulled, computed = self._compute(inputs, labels, step_and_seed)
        with tf.device(self._devices.beside_steps):
            return tf.identity(pulled), computed, tf.identity(computed[-1])

    def apply(self, pulled: Any, computed: Any, hyper_parameters: Any, count: Any) -> Any:
        """The second half: applies what was computed; the acknowledgement."""
        message = tf.concat([computed, hyper_parameters], 0)
        with tf.device(self._devices.parameter_server):
            computed, rate, momentum = tf.split(message, [computed.shape[0], 1, 1])
            gradient, contribution, loss = self._parts(computed)
            with tf.control_dependencies(self._moved(contribution)):
                pushed = self._update.apply(gradient, tf.squeeze(rate), tf.squeeze(momentum))
            with tf.control_dependencies([pushed]):
                one = tf.ones([], tf.int64)
                counted = tf.raw_ops.AssignAddVariableOp(resource=count, value=one)
            with tf.control_dependencies([counted]):
                return _acknowledgement(loss, pulled, pushed)

    def fill_slot(self, pulled: Any, computed: Any, slot: Any) -> Any:
        """The second half: puts what was computed into a slot; the acknowledgement."""
        with tf.device(self._devices.parameter_server):
            written = tf.raw_ops.AssignVariableOp(resource=slot, value=computed)
            with tf.control_dependencies([written]):
                pushed = self.state.updates.read_value()
            return _acknowledgement(self._parts(computed)[2], pulled, pushed)

    def apply_mean(self, active_rate_momentum: Any) -> Any:
        """Applies the mean of some slots; the updates by then.

        Args:
            active_rate_momentum: 1 for each worker that takes part and 0 for the others, then the
                learning rate and the momentum.
        """
        with tf.device(self._devices.parameter_server):
            n = len(self.gradient_slots)
            active, rate, momentum = tf.split(active_rate_momentum, [n, 1, 1])
            slots = tf.stack([slot.read_value() for slot in self.gradient_slots])
            # Not a weighted sum: what a lost worker left in its slot may be no number.
            mean = tf.reduce_mean(tf.boolean_mask(slots, active > 0), axis=0)
            gradient, contribution, _ = self._parts(mean)
            with tf.control_dependencies(self._moved(contribution)):
                return self._update.apply(gradient, tf.squeeze(rate), tf.squeeze(momentum))

    def _compute(self, inputs: Any, labels: Any, step_and_seed: Any) -> tuple[Any, Any]:
        """Traces pulling the state and computing one batch.

        Each tensor that crosses from server to server is a call of its own, so what belongs
        together crosses as one.

        Returns:
            On the parameter server, updates applied before the pull; on the worker, gradient,
            contribution to the statistics, and loss as one vector.
        """
        with tf.device(self._devices.parameter_server):
            pulled = self.state.updates.read_value()
            # The count is read first: staleness may be counted one too high, never too low.
            with tf.control_dependencies([pulled]):
                state = self.state.parameters.read_value()
                if self._function.statistics.size:
                    state = tf.concat([state, self.state.statistics.read_value()], 0)
        # Onto the worker: what follows would otherwise run where the variables are.
        state = tf.identity(state)
        parameters, statistics = tf.split(
            state, [self._function.parameters.size, self._function.statistics.size]
        )
        with tf.device(self._devices.beside_steps):
            batch = self._function.batch(inputs, labels, step_and_seed[0], step_and_seed[1])
        loss, gradient, contribution = self._function.gradient(parameters, statistics, *batch)
        return pulled, tf.concat([gradient, contribution, [tf.cast(loss, tf.float32)]], 0)

    def _moved(self, contribution: Any) -> list[Any]:
        """Traces moving the statistics as they are by then; the operations to depend on."""
        if not self._function.statistics.size:
            return []
        return [self._statistics.apply(contribution)]

    def _parts(self, computed: Any) -> tuple[Any, Any, Any]:
        """Gradient, contribution to the statistics, and loss of what `_compute` joined."""
        gradient, contribution, loss = tf.split(
            computed, [self._function.parameters.size, self._function.statistics.size, 1]
        )
        return gradient, contribution, tf.squeeze(loss)


def _acknowledgement(loss: Any, pulled: Any, pushed: Any) -> Any:
    # One tensor, one fetch; float64 holds every count exactly up to 2**53.
    return tf.stack([tf.cast(value, tf.float64) for value in (loss, pulled, pushed)])
