"""The traced functions of a training job and the state they work on.

The state lives on the parameter server. One function computes a worker-step; it is traced once and
executed under the device of whichever worker calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.cluster.launchers import Devices
from syncswitch.trainers.cluster.layout import FlatLayout, Vector
from syncswitch.trainers.cluster.optimizer import (
    FlatOptimizer,
    FusedMomentum,
    KerasOptimizer,
    assign,
    pack,
    unpack,
)
from syncswitch.trainers.cluster.tensorflow_api import tf
from syncswitch.trainers.data import Data
from syncswitch.trainers.keras_parts import build_loss
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
        self._data = data
        self._model = workload.model()
        if not self._model.built:
            raise WorkloadError(
                f"workload {workload.name!r}: the model has no variables yet; "
                "give it an Input, or build it before you return it"
            )
        self._loss = build_loss(workload.loss)
        self.parameters = FlatLayout.of(self._model.trainable_variables, "parameter")
        self.statistics = FlatLayout.of(_moving(self._model), "statistic")
        with tf.device(devices.parameter_server):
            self._place_state()
            self._optimizer = self._make_optimizer()
        self.slots = self._optimizer.layout
        self._worker_data = [self._place_data(device) for device in devices.workers]
        self._trace()

    def initial_state(self, seed: int) -> ModelState:
        """Fresh values, as the workload's model function makes them under `seed`."""
        import keras

        keras.utils.set_random_seed(seed)
        model = self._workload.model()
        return ModelState(
            self.parameters.pack(model.trainable_variables),
            self._optimizer.initial_slots(),
            self.statistics.pack(_moving(model)),
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
                tf.constant(worker_step, tf.int64),
                tf.constant(seed, tf.int64),
                tf.constant(rate, tf.float32),
                tf.constant(momentum, tf.float32),
            )
        return _push(acknowledgement)

    def push_gradient(self, worker: int, worker_step: int, seed: int) -> Push:
        """Computes one gradient into the worker's slot. Blocks until it has arrived there."""
        with tf.device(self._devices.workers[worker]):
            acknowledgement = self._step_to_slot(
                *self._worker_data[worker],
                tf.constant(worker_step, tf.int64),
                tf.constant(seed, tf.int64),
                self._gradient_slots[worker].handle,
            )
        return _push(acknowledgement)

    def apply_round(self, workers: Sequence[int], rate: float, momentum: float) -> int:
        """Applies the mean of these workers' gradients as one update.

        Returns:
            Updates applied so far.
        """
        active = np.zeros(len(self._gradient_slots), np.bool_)
        active[list(workers)] = True
        return int(
            self._apply_mean(
                tf.constant(active),
                tf.constant(rate, tf.float32),
                tf.constant(momentum, tf.float32),
            )
        )

    def predict(self, parameters: Any, statistics: Any, inputs: Any) -> Any:
        """Traces the model in inference mode on flat tensors."""
        seed = tf.constant([0, 0], tf.int64)
        outputs, _ = self._model.stateless_call(
            unpack(parameters, self.parameters),
            self._untrained(statistics, seed),
            inputs,
            training=False,
        )
        return outputs

    def _place_state(self) -> None:
        P, S = self.parameters.size, self.statistics.size
        self._parameters = tf.Variable(tf.zeros(P), name="parameters")
        self._statistics = tf.Variable(tf.zeros(S), name="statistics")
        self._updates = tf.Variable(tf.zeros([], tf.int64), name="updates")
        # A slot of its own for each worker: a sum in arrival order would not be repeatable.
        self._gradient_slots = [
            tf.Variable(tf.zeros(P + S), name=f"gradient_{worker}")
            for worker in range(len(self._devices.workers))
        ]

    def _make_optimizer(self) -> FlatOptimizer:
        if self._workload.optimizer is None:
            return FusedMomentum(self.parameters, self._parameters, self._updates)
        variables = self._workload.model().trainable_variables
        return KerasOptimizer(
            self._workload.optimizer, variables, self.parameters, self._parameters, self._updates
        )

    def _place_data(self, device: str) -> tuple[Any, Any]:
        with tf.device(device):
            return (
                tf.identity(tf.constant(self._data.train_inputs)),
                tf.identity(tf.constant(self._data.train_labels)),
            )

    def _trace(self) -> None:
        """Traces everything and executes it once on each worker, so that no trial pays for it."""
        data, rate = self._worker_data[0], tf.zeros([])
        step, seed = tf.zeros([], tf.int64), tf.zeros([], tf.int64)
        workers = range(len(self._gradient_slots))
        try:
            self._step_and_apply = tf.function(
                self._traced_step_and_apply, autograph=False
            ).get_concrete_function(*data, step, seed, rate, rate)
            self._step_to_slot = tf.function(
                self._traced_step_to_slot, autograph=False
            ).get_concrete_function(*data, step, seed, self._gradient_slots[0].handle)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise WorkloadError(
                f"workload {self._workload.name!r}: model, data and loss do not fit together: "
                f"{_last_line(error)}"
            ) from error
        self._load = tf.function(self._traced_load, autograph=False).get_concrete_function(
            *(tf.zeros(layout.size) for layout in (self.parameters, self.slots, self.statistics)),
            step,
        )
        self._copy = tf.function(self._traced_copy, autograph=False).get_concrete_function()
        self._apply_mean = tf.function(
            self._traced_apply_mean, autograph=False
        ).get_concrete_function(tf.constant([True] * len(workers)), rate, rate)
        for worker in workers:
            self.push_update(worker, 0, 0, 0.0, 0.0)
            self.push_gradient(worker, 0, 0)
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
        self, inputs: Any, labels: Any, worker_step: Any, seed: Any, rate: Any, momentum: Any
    ) -> Any:
        loss, gradient, change, pulled = self._gradient(inputs, labels, worker_step, seed)
        with tf.device(self._devices.parameter_server):
            moved = self._statistics.assign_add(change, use_locking=True, read_value=False)
            with tf.control_dependencies([moved]):
                pushed = self._optimizer.apply(gradient, rate, momentum)
        return _acknowledgement(loss, pulled, pushed)

    def _traced_step_to_slot(
        self, inputs: Any, labels: Any, worker_step: Any, seed: Any, slot: Any
    ) -> Any:
        loss, gradient, change, pulled = self._gradient(inputs, labels, worker_step, seed)
        with tf.device(self._devices.parameter_server):
            written = tf.raw_ops.AssignVariableOp(
                resource=slot, value=tf.concat([gradient, change], 0)
            )
            with tf.control_dependencies([written]):
                pushed = self._updates.read_value()
        return _acknowledgement(loss, pulled, pushed)

    def _traced_apply_mean(self, active: Any, rate: Any, momentum: Any) -> Any:
        with tf.device(self._devices.parameter_server):
            slots = tf.stack([slot.read_value() for slot in self._gradient_slots])
            mean = tf.reduce_mean(tf.boolean_mask(slots, active), axis=0)
            gradient, change = tf.split(mean, [self.parameters.size, self.statistics.size])
            moved = self._statistics.assign_add(change, read_value=False)
            with tf.control_dependencies([moved]):
                return self._optimizer.apply(gradient, rate, momentum)

    def _gradient(
        self, inputs: Any, labels: Any, worker_step: Any, seed: Any
    ) -> tuple[Any, Any, Any, Any]:
        """Pulls the parameters and computes the gradient of batch `worker_step`.

        Returns:
            Loss, flat gradient, flat change of the statistics, updates applied before the pull.
        """
        with tf.device(self._devices.parameter_server):
            pulled = self._updates.read_value()
            # The count is read first: staleness may be counted one too high, never too low.
            with tf.control_dependencies([pulled]):
                parameters = self._parameters.read_value()
                statistics = self._statistics.read_value()
        # Onto the worker: what follows would otherwise run where the variable is.
        parameters, statistics = tf.identity(parameters), tf.identity(statistics)
        batch_inputs, batch_labels, batch_seed = self._batch(inputs, labels, worker_step, seed)
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            outputs, untrained, extra_losses = self._model.stateless_call(
                unpack(parameters, self.parameters),
                self._untrained(statistics, batch_seed),
                batch_inputs,
                training=True,
                return_losses=True,
            )
            loss = tf.reduce_mean(self._loss(batch_labels, outputs))
            if extra_losses:
                loss += tf.add_n([tf.cast(extra, loss.dtype) for extra in extra_losses])
        gradient = tape.gradient(loss, parameters)
        moving = pack(
            [
                value
                for variable, value in zip(
                    self._model.non_trainable_variables, untrained, strict=True
                )
                if _is_moving(variable)
            ]
        )
        return loss, gradient, moving - statistics, pulled

    def _batch(self, inputs: Any, labels: Any, worker_step: Any, seed: Any) -> tuple[Any, Any, Any]:
        """Batch number `worker_step` of the job: the next B places in an endless row of epochs."""
        B, examples = self._workload.batch_size, len(self._data.train_inputs)
        places = worker_step * B + tf.range(B, dtype=tf.int64)
        epochs = places // examples
        seeds = tf.stack([tf.fill([B], seed), epochs, tf.zeros_like(epochs)], axis=-1)
        indices = tf.raw_ops.RandomIndexShuffle(
            index=places % examples,
            seed=seeds,
            max_index=tf.constant(examples - 1, tf.int64),
            rounds=4,
        )
        batch_inputs, batch_labels = tf.gather(inputs, indices), tf.gather(labels, indices)
        batch_seed = tf.stack([seed, worker_step])
        if self._data.transform is not None:
            batch_inputs, batch_labels = self._data.transform(
                batch_inputs, batch_labels, batch_seed
            )
        return batch_inputs, batch_labels, batch_seed

    def _untrained(self, statistics: Any, seed: Any) -> list[Any]:
        """Values of the variables that are not trained.

        Seeds of random layers follow from the batch, so that dropout differs between workers and
        is the same when a step is done again; whatever else is not float32 stays as it was built.
        """
        moving = iter(unpack(statistics, self.statistics))
        values = []
        for index, variable in enumerate(self._model.non_trainable_variables):
            if _is_moving(variable):
                values.append(next(moving))
            elif "seed" in variable.name and tuple(variable.shape) == (2,):
                values.append(tf.cast(seed + index, variable.dtype))
            else:
                values.append(tf.constant(variable.numpy()))
        return values


def restored_model(
    workload: Workload, parameters: Mapping[str, Vector], statistics: Mapping[str, Vector]
) -> Any:
    """The workload's Keras model with values by logical name."""
    model = workload.model()
    for variables, named, what in (
        (model.trainable_variables, parameters, "parameter"),
        (_moving(model), statistics, "statistic"),
    ):
        layout = FlatLayout.of(variables, what)
        assign(variables, layout.split(layout.from_named(named)))
    return model


def _is_moving(variable: Any) -> bool:
    return str(variable.dtype) == "float32"


def _moving(model: Any) -> list[Any]:
    """Variables that training moves without a gradient: means and variances of BatchNorm."""
    return [variable for variable in model.non_trainable_variables if _is_moving(variable)]


def _acknowledgement(loss: Any, pulled: Any, pushed: Any) -> Any:
    # One tensor, one fetch; float64 holds every count exactly up to 2**53.
    return tf.stack([tf.cast(value, tf.float64) for value in (loss, pulled, pushed)])


def _push(acknowledgement: Any) -> Push:
    loss, pulled, pushed = acknowledgement.numpy()
    return Push(float(loss), int(pulled), int(pushed))


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
