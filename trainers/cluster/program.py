"""The traced functions of a training job and the state they work on.

The state lives on the parameter server. One function computes a worker-step; it is traced once and
executed under the device of whichever worker calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.trainers.cluster.launchers import Devices
from syncswitch.trainers.cluster.layout import FlatLayout, Vector, assign
from syncswitch.trainers.cluster.model_function import ModelFunction, moving_variables
from syncswitch.trainers.cluster.optimizer import FlatOptimizer, FusedMomentum, KerasOptimizer
from syncswitch.trainers.cluster.tensorflow_api import tf
from syncswitch.trainers.data import Data
from syncswitch.trainers.keras_parts import build_model, build_optimizer
from syncswitch.trainers.workload import Workload

__all__ = ["ModelState", "Program", "Push", "restored_model"]


@dataclass(frozen=True)
class ModelState:
    """All that changes while training, as flat vectors.

    Attributes:
        parameters: Trained variables.
        slots: The optimizer's variables.
        statistics: Variables that are not trained: moving means and variances.
        updates: Updates applied.
    """

    parameters: Vector
    slots: Vector
    statistics: Vector
    updates: int = 0


@dataclass(frozen=True, slots=True)
class Push:
    """Acknowledgement of one worker-step, sent after the parameter server has taken it in.

    Attributes:
        loss: Of the batch, before the update.
        pulled_updates: Updates applied when the worker read the parameters.
        pushed_updates: Updates applied when its gradient had arrived; for a protocol that applies
            each push, this one included.
    """

    loss: float
    pulled_updates: int
    pushed_updates: int


class Program:
    """A workload, traced for the devices of one cluster; serves many trials one after the other."""

    def __init__(self, workload: Workload, data: Data, devices: Devices) -> None:
        self._workload = workload
        self._devices = devices
        self.function = ModelFunction(workload, data)
        self.parameters = self.function.parameters
        self.statistics = self.function.statistics
        with tf.device(devices.parameter_server):
            self._place_state()
            self._optimizer = self._make_optimizer()
        self.slots = self._optimizer.layout
        self._kept_hyper_parameters: dict[int, tuple[Any, Any]] = {}
        # Devices of one process share what one of them holds.
        everything = tf.constant(data.train_inputs), tf.constant(data.train_labels)
        self._worker_data = [_placed(everything, device) for device in devices.workers]
        self._trace()

    def initial_state(self, seed: int) -> ModelState:
        """Fresh values, as the workload's model function makes them under `seed`."""
        import keras

        keras.utils.set_random_seed(seed)
        model = build_model(self._workload)
        return ModelState(
            self.parameters.pack(model.trainable_variables),
            self._optimizer.initial_slots(),
            self.statistics.pack(moving_variables(model)),
        )

    def load(self, state: ModelState) -> None:
        """Puts a state onto the parameter server. Blocks until it is there."""
        loaded = self._load(
            tf.constant(state.parameters),
            tf.constant(state.slots),
            tf.constant(state.statistics),
            tf.constant(state.updates, tf.int64),
        )
        # A call to a server returns before it is carried out; what it returns is there after.
        assert int(loaded) == state.updates

    def state(self) -> ModelState:
        """Copies the state from the parameter server; consistent only while nobody trains."""
        return ModelState(
            self._parameters.numpy(),
            self._optimizer.slots(),
            self._statistics.numpy(),
            int(self._updates.numpy()),
        )

    def snapshot(self) -> tuple[Any, Any]:
        """Copies of parameters and statistics, which stay on the parameter server until used.

        Blocks until they are taken, so that no later update is in them.
        """
        parameters, statistics, updates = self._copy()
        updates.numpy()
        return parameters, statistics

    def push_update(
        self, worker: int, worker_step: int, seed: int, rate: float, momentum: float
    ) -> Push:
        """Computes one gradient and applies it at once. Blocks until it is applied."""
        with tf.device(self._devices.workers[worker]):
            acknowledgement = self._step_and_apply(
                *self._worker_data[worker],
                tf.constant([worker_step, seed], tf.int64),
                self._hyper_parameters(worker, rate, momentum),
            )
        return _push(acknowledgement)

    def push_gradient(self, worker: int, worker_step: int, seed: int) -> Push:
        """Computes one gradient into the worker's slot. Blocks until it has arrived there."""
        with tf.device(self._devices.workers[worker]):
            acknowledgement = self._step_to_slot(
                *self._worker_data[worker],
                tf.constant([worker_step, seed], tf.int64),
                self._gradient_slots[worker].handle,
            )
        return _push(acknowledgement)

    def apply_round(self, workers: Sequence[int], rate: float, momentum: float) -> int:
        """Applies the mean of these workers' gradients as one update.

        Returns:
            Updates applied so far.
        """
        active = np.zeros(len(self._gradient_slots), np.float32)
        active[list(workers)] = 1.0
        return int(self._apply_mean(tf.constant(np.append(active, (rate, momentum)), tf.float32)))

    def _hyper_parameters(self, worker: int, rate: float, momentum: float) -> Any:
        """Rate and momentum on a worker; they change rarely, and each transfer is a call."""
        key, tensor = self._kept_hyper_parameters.get(worker, (None, None))
        if key != (rate, momentum):
            tensor = tf.constant([rate, momentum], tf.float32)
            self._kept_hyper_parameters[worker] = ((rate, momentum), tensor)
        return tensor

    def _place_state(self) -> None:
        P, S = self.parameters.size, self.statistics.size
        self._parameters = tf.Variable(tf.zeros(P), name="parameters")
        self._statistics = tf.Variable(tf.zeros(S), name="statistics")
        self._updates = tf.Variable(tf.zeros([], tf.int64), name="updates")
        # A slot of its own for each worker: a sum in arrival order would not be repeatable.
        self._gradient_slots = [
            tf.Variable(tf.zeros(P + S + 1), name=f"gradient_{worker}")
            for worker in range(len(self._devices.workers))
        ]

    def _make_optimizer(self) -> FlatOptimizer:
        if self._workload.optimizer is None:
            return FusedMomentum(self.parameters, self._parameters, self._updates)
        variables = build_model(self._workload).trainable_variables
        optimizer = build_optimizer(self._workload)
        return KerasOptimizer(
            optimizer, variables, self.parameters, self._parameters, self._updates
        )

    def _trace(self) -> None:
        """Traces everything and executes it once on each worker, so that no trial pays for it."""
        data, step_and_seed = self._worker_data[0], tf.zeros([2], tf.int64)
        workers = range(len(self._gradient_slots))
        try:
            self._step_and_apply = tf.function(
                self._traced_step_and_apply, autograph=False
            ).get_concrete_function(*data, step_and_seed, tf.zeros([2]))
            self._step_to_slot = tf.function(
                self._traced_step_to_slot, autograph=False
            ).get_concrete_function(*data, step_and_seed, self._gradient_slots[0].handle)
            for worker in workers:
                self.push_update(worker, 0, 0, 0.0, 0.0)
                self.push_gradient(worker, 0, 0)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise WorkloadError(
                f"workload {self._workload.name!r}: model, data and loss do not fit together: "
                f"{one_line(error)}"
            ) from error
        self._load = tf.function(self._traced_load, autograph=False).get_concrete_function(
            *(tf.zeros(layout.size) for layout in (self.parameters, self.slots, self.statistics)),
            tf.zeros([], tf.int64),
        )
        self._copy = tf.function(self._traced_copy, autograph=False).get_concrete_function()
        self._apply_mean = tf.function(
            self._traced_apply_mean, autograph=False
        ).get_concrete_function(tf.zeros(len(workers) + 2))
        self.apply_round(workers, 0.0, 0.0)

    def _traced_load(self, parameters: Any, slots: Any, statistics: Any, updates: Any) -> Any:
        with tf.device(self._devices.parameter_server):
            self._optimizer.load(parameters, slots, updates)
            # Functions run stateful operations in the order in which they were traced.
            self._parameters.assign(parameters)
            self._statistics.assign(statistics)
            self._updates.assign(updates)
            return self._updates.read_value()

    def _traced_copy(self) -> Any:
        with tf.device(self._devices.parameter_server):
            state = (self._parameters, self._statistics, self._updates)
            return [tf.identity(variable.read_value()) for variable in state]

    def _traced_step_and_apply(
        self, inputs: Any, labels: Any, step_and_seed: Any, hyper_parameters: Any
    ) -> Any:
        pulled, computed = self._compute(inputs, labels, step_and_seed)
        message = tf.concat([computed, hyper_parameters], 0)
        with tf.device(self._devices.parameter_server):
            computed, rate, momentum = tf.split(message, [computed.shape[0], 1, 1])
            gradient, change, loss = self._parts(computed)
            with tf.control_dependencies(self._moved(change)):
                pushed = self._optimizer.apply(gradient, tf.squeeze(rate), tf.squeeze(momentum))
            return _acknowledgement(loss, pulled, pushed)

    def _traced_step_to_slot(self, inputs: Any, labels: Any, step_and_seed: Any, slot: Any) -> Any:
        pulled, computed = self._compute(inputs, labels, step_and_seed)
        with tf.device(self._devices.parameter_server):
            written = tf.raw_ops.AssignVariableOp(resource=slot, value=computed)
            with tf.control_dependencies([written]):
                pushed = self._updates.read_value()
            return _acknowledgement(self._parts(computed)[2], pulled, pushed)

    def _traced_apply_mean(self, active_rate_momentum: Any) -> Any:
        with tf.device(self._devices.parameter_server):
            n = len(self._gradient_slots)
            active, rate, momentum = tf.split(active_rate_momentum, [n, 1, 1])
            slots = tf.stack([slot.read_value() for slot in self._gradient_slots])
            # Not a weighted sum: what a lost worker left in its slot may be no number.
            mean = tf.reduce_mean(tf.boolean_mask(slots, active > 0), axis=0)
            gradient, change, _ = self._parts(mean)
            with tf.control_dependencies(self._moved(change)):
                return self._optimizer.apply(gradient, tf.squeeze(rate), tf.squeeze(momentum))

    def _compute(self, inputs: Any, labels: Any, step_and_seed: Any) -> tuple[Any, Any]:
        """Traces pulling the state and computing one batch.

        Each tensor that crosses from server to server is a call of its own, so what belongs
        together crosses as one.

        Returns:
            On the parameter server, updates applied before the pull; on the worker, gradient,
            change of the statistics, and loss as one vector.
        """
        with tf.device(self._devices.parameter_server):
            pulled = self._updates.read_value()
            # The count is read first: staleness may be counted one too high, never too low.
            with tf.control_dependencies([pulled]):
                state = self._parameters.read_value()
                if self.statistics.size:
                    state = tf.concat([state, self._statistics.read_value()], 0)
        # Onto the worker: what follows would otherwise run where the variables are.
        state = tf.identity(state)
        parameters, statistics = tf.split(state, [self.parameters.size, self.statistics.size])
        batch = self.function.batch(inputs, labels, step_and_seed[0], step_and_seed[1])
        loss, gradient, change = self.function.gradient(parameters, statistics, *batch)
        return pulled, tf.concat([gradient, change, [tf.cast(loss, tf.float32)]], 0)

    def _moved(self, change: Any) -> list[Any]:
        """Traces adding a change to the statistics; the operations to depend on."""
        if not self.statistics.size:
            return []
        return [self._statistics.assign_add(change, use_locking=True, read_value=False)]

    def _parts(self, computed: Any) -> tuple[Any, Any, Any]:
        """Gradient, change of the statistics, and loss of what `_compute` joined."""
        gradient, change, loss = tf.split(computed, [self.parameters.size, self.statistics.size, 1])
        return gradient, change, tf.squeeze(loss)


def restored_model(
    workload: Workload, parameters: Mapping[str, Vector], statistics: Mapping[str, Vector]
) -> Any:
    """The workload's Keras model with values by logical name."""
    model = build_model(workload)
    for variables, named, what in (
        (model.trainable_variables, parameters, "parameter"),
        (moving_variables(model), statistics, "statistic"),
    ):
        layout = FlatLayout.of(variables, what)
        assign(variables, layout.split(layout.from_named(named)))
    return model


def _placed(tensors: tuple[Any, Any], device: str) -> tuple[Any, Any]:
    with tf.device(device):
        inputs, labels = map(tf.identity, tensors)
        return inputs, labels


def _acknowledgement(loss: Any, pulled: Any, pushed: Any) -> Any:
    # One tensor, one fetch; float64 holds every count exactly up to 2**53.
    return tf.stack([tf.cast(value, tf.float64) for value in (loss, pulled, pushed)])


def _push(acknowledgement: Any) -> Push:
    loss, pulled, pushed = acknowledgement.numpy()
    return Push(float(loss), int(pulled), int(pushed))
