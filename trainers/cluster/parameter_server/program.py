"""The traced functions of a training job, and how they are called.

The state lives on the parameter server. One function computes a worker-step; it is traced once and
executed under the device of whichever worker calls it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.trainers.cluster.parameter_server.replicas import Replicas
from syncswitch.trainers.cluster.parameter_server.server_steps import ServerSteps
from syncswitch.trainers.cluster.servers.placement import Devices
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.optimizer import make_optimizer
from syncswitch.trainers.model.state import ModelState, StateForm
from syncswitch.trainers.model.tensorflow_api import concrete, constant_on, own_executor, tf

HoldUp = Callable[[float], None]
"""Blocks a worker between its pull and its push; is told how long its gradient took, in seconds."""

_SETTLE_SECONDS = 0.05


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
        with tf.device(devices.parameter_server):
            self._optimizer = make_optimizer(workload, self.function.parameters)
            self.form = StateForm(workload, self.function, self._optimizer)
            self._steps = ServerSteps(self.function, self._optimizer, devices)
        self._kept_hyper_parameters: dict[int, tuple[Any, Any]] = {}
        self._replicas: Replicas | None = None
        # Devices of one process share what one of them holds.
        self._data = tf.constant(data.train_inputs), tf.constant(data.train_labels)
        self._worker_data = [_placed(self._data, device) for device in devices.workers]
        self._acknowledged = [0] * len(devices.workers)
        self._trace()

    @property
    def replicas(self) -> Replicas:
        """Copies of the state on the workers; made and traced when they are first asked for."""
        if self._replicas is None:
            self._replicas = Replicas(
                self._workload, self.function, self._devices, self._worker_data
            )
        return self._replicas

    def prepare_replicas(self) -> None:
        """Makes the replicas before a run needs them."""
        _ = self.replicas

    def prepare_hold_ups(self) -> None:
        """Traces steps that can be delayed before a run needs them."""
        for worker in range(len(self._steps.gradient_slots)):
            self.push_update(worker, 0, 0, 0.0, 0.0, lambda _: None)
            self.push_gradient(worker, 0, 0, lambda _: None)

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
        self._acknowledged = [0] * len(self._acknowledged)

    def state(self) -> ModelState:
        """Copies the state from the parameter server; consistent only while nobody trains."""
        state = self._steps.state
        return ModelState(
            state.parameters.numpy(),
            state.slots.numpy(),
            state.statistics.numpy(),
            int(state.updates.numpy()),
        )

    def snapshot(self) -> tuple[Any, Any]:
        """Copies of parameters and statistics, which stay on the parameter server until used.

        Blocks until they are taken, so that no later update is in them.
        """
        parameters, statistics, updates = self._copy()
        updates.numpy()
        return parameters, statistics

    def push_update(
        self,
        worker: int,
        worker_step: int,
        seed: int,
        rate: float,
        momentum: float,
        hold_up: HoldUp | None = None,
    ) -> Push:
        """Computes one gradient and applies it at once. Blocks until it is applied."""
        hyper_parameters = self._hyper_parameters(worker, rate, momentum)
        rest = hyper_parameters, self._steps.push_counts[worker].handle
        if hold_up is not None:
            return self._held_up(worker, worker_step, seed, hold_up, self._halves[1], *rest)
        numbers = self._numbers(worker, worker_step, seed)
        with tf.device(self._devices.steps[worker]):
            return _push(self._step_and_apply(*self._worker_data[worker], numbers, *rest))

    def push_gradient(
        self, worker: int, worker_step: int, seed: int, hold_up: HoldUp | None = None
    ) -> Push:
        """Computes one gradient into the worker's slot. Blocks until it has arrived there."""
        slot = self._steps.gradient_slots[worker].handle
        if hold_up is not None:
            return self._held_up(worker, worker_step, seed, hold_up, self._halves[2], slot)
        numbers = self._numbers(worker, worker_step, seed)
        with tf.device(self._devices.steps[worker]):
            return _push(self._step_to_slot(*self._worker_data[worker], numbers, slot))

    def apply_round(self, workers: Sequence[int], rate: float, momentum: float) -> int:
        """Applies the mean of these workers' gradients as one update.

        Returns:
            Updates applied so far.
        """
        active = np.zeros(len(self._steps.gradient_slots), np.float32)
        active[list(workers)] = 1.0
        return int(self._apply_mean(tf.constant(np.append(active, (rate, momentum)), tf.float32)))

    def note_acknowledged(self, worker: int) -> None:
        """Records that the chief knows of an update by `push_update`."""
        self._acknowledged[worker] += 1

    def was_applied(self, worker: int) -> bool:
        """Whether an update of this worker was applied without the chief knowing (fencing).

        Raises:
            Exception: One of TensorFlow's, where the parameter server is lost.
        """
        # What the parameter server was doing for the worker ends by itself.
        time.sleep(_SETTLE_SECONDS)
        count = int(self._steps.push_counts[worker].numpy())
        is_news = count > self._acknowledged[worker]
        self._acknowledged[worker] = count
        return is_news

    def place(self, worker: int) -> None:
        """Copies the data to the new server of a worker; its replica is still empty."""
        self._kept_hyper_parameters.pop(worker, None)
        self._worker_data[worker] = _placed(self._data, self._devices.workers[worker])
        if self._replicas is not None:
            self._replicas.renew(worker)

    def answers(self, worker: int | None) -> bool:
        """Whether the server of a worker, or the parameter server (None), responds.

        Blocks for as long as it does nothing.
        """
        devices = self._devices
        device = devices.parameter_server if worker is None else devices.workers[worker]
        try:
            with own_executor():
                one = constant_on(device, [1.0], tf.float32)
                with tf.device(device):
                    return bool(tf.identity(one).numpy()[0] == 1.0)
        except tf.errors.OpError:
            return False

    def _held_up(
        self, worker: int, worker_step: int, seed: int, hold_up: HoldUp, push: Any, *rest: Any
    ) -> Push:
        """A step in two calls; what is pulled in the first may be old in the second."""
        start = time.perf_counter()
        numbers = self._numbers(worker, worker_step, seed)
        with tf.device(self._devices.steps[worker]):
            pulled, computed, loss = self._halves[0](*self._worker_data[worker], numbers)
        # A call to a server returns before it is carried out; what it returns is there after.
        loss.numpy()
        hold_up(time.perf_counter() - start)
        with tf.device(self._devices.steps[worker]):
            return _push(push(pulled, computed, *rest))

    @cached_property
    def _halves(self) -> tuple[Any, Any, Any]:
        """A step to the gradient, and what applies it or puts it into a slot."""
        steps, pulled = self._steps, tf.zeros([], tf.int64)
        computed = tf.zeros(steps.gradient_slots[0].shape)
        return (
            concrete(steps.compute, *self._worker_data[0], tf.zeros([2], tf.int64)),
            concrete(steps.apply, pulled, computed, tf.zeros([2]), steps.push_counts[0].handle),
            concrete(steps.fill_slot, pulled, computed, steps.gradient_slots[0].handle),
        )

    def _numbers(self, worker: int, worker_step: int, seed: int) -> Any:
        """What a batch is made of, on a worker."""
        return constant_on(self._devices.workers[worker], [worker_step, seed], tf.int64)

    def _hyper_parameters(self, worker: int, rate: float, momentum: float) -> Any:
        """Rate and momentum on a worker; they change rarely, and each transfer is a call."""
        key, tensor = self._kept_hyper_parameters.get(worker, (None, None))
        if key != (rate, momentum):
            tensor = constant_on(self._devices.workers[worker], [rate, momentum], tf.float32)
            self._kept_hyper_parameters[worker] = ((rate, momentum), tensor)
        return tensor

    def _trace(self) -> None:
        """Traces everything and executes it once on each worker, so that no trial pays for it."""
        steps, workers = self._steps, range(len(self._steps.gradient_slots))
        count, slot = steps.push_counts[0].handle, steps.gradient_slots[0].handle
        batch = *self._worker_data[0], tf.zeros([2], tf.int64)
        try:
            self._step_and_apply = concrete(steps.step_and_apply, *batch, tf.zeros([2]), count)
            self._step_to_slot = concrete(steps.step_to_slot, *batch, slot)
            for worker in workers:
                self.push_update(worker, 0, 0, 0.0, 0.0)
                self.push_gradient(worker, 0, 0)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise WorkloadError(
                f"workload {self._workload.name!r}: model, data and loss do not fit together: "
                f"{one_line(error)}"
            ) from error
        layouts = (self.form.parameters, self.form.slots, self.form.statistics)
        empty = [tf.zeros(layout.size) for layout in layouts]
        self._load = concrete(steps.load, *empty, tf.zeros([], tf.int64))
        self._copy = concrete(steps.copy)
        self._apply_mean = concrete(steps.apply_mean, tf.zeros(len(workers) + 2))
        self.apply_round(workers, 0.0, 0.0)


def _placed(tensors: tuple[Any, Any], device: str) -> tuple[Any, Any]:
    with tf.device(device):
        inputs, labels = map(tf.identity, tensors)
        return inputs, labels


def _push(acknowledgement: Any) -> Push:
    loss, pulled, pushed = acknowledgement.numpy()
    return Push(float(loss), int(pulled), int(pushed))
