"""A copy of the state on each worker, for protocols that train there and average."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from syncswitch.trainers.cluster.servers.placement import Devices
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.optimizer import Optimizer, make_optimizer
from syncswitch.trainers.model.state import ModelState
from syncswitch.trainers.model.tensorflow_api import concrete, constant_on, tf


class Replicas:
    """Parameters, statistics and slots of each worker, in one variable on its device.

    A worker's own thread calls `step`; what writes replicas may be called while these are at rest,
    what reads them (`mean`, `snapshot`) at any time.

    Args:
        workload: What is trained; each replica has an optimizer of its own.
        function: Its model.
        devices: Of the cluster.
        worker_data: Training inputs and labels, on each worker.
    """

    def __init__(
        self,
        workload: Workload,
        function: ModelFunction,
        devices: Devices,
        worker_data: Sequence[tuple[Any, Any]],
    ) -> None:
        self._workload = workload
        self._function = function
        self._devices = devices
        self._worker_data = worker_data
        self._updates = [0] * len(devices.workers)
        # The variable that was filled: one in its place is empty.
        self._filled: dict[int, Any] = {}
        self._optimizers = _optimizers(workload, function, devices)
        slots = self._optimizers[0].layout.size
        self._sizes = [function.parameters.size, function.statistics.size, slots]
        self._averaged_size = self._sizes[0] + self._sizes[1]
        self._variables = [self._empty(worker) for worker in range(len(devices.workers))]
        self._trace()

    def scatter(self, state: ModelState, workers: Iterable[int]) -> list[int]:
        """Gives these workers a copy of `state`. Blocks until they have it.

        Returns:
            Those that could not be reached.
        """
        flat = np.concatenate([state.parameters, state.statistics, state.slots])
        lost = []
        for worker in workers:
            variable = self._variables[worker]
            try:
                self._write(worker, self._overwrite, tf.constant(flat))
            except tf.errors.OpError:
                lost.append(worker)
                continue
            self._updates[worker] = state.updates
            self._filled[worker] = variable
        return lost

    def holds(self, worker: int) -> bool:
        """Whether a worker has a replica, which `scatter` gave it."""
        return self._filled.get(worker) is self._variables[worker]

    def forget(self, worker: int) -> None:
        """Discards the replica of a worker."""
        self._filled.pop(worker, None)

    def forget_all(self) -> None:
        """Discards all replicas."""
        self._filled.clear()

    def renew(self, worker: int) -> None:
        """Makes an empty replica on the new server of a worker, for `scatter` to fill."""
        self._variables[worker] = self._empty(worker)
        if not self._optimizers[worker].is_reentrant:
            with tf.device(self._devices.steps[worker]):
                self._optimizers[worker] = make_optimizer(self._workload, self._function.parameters)
                self._steps[worker] = self._traced(self._optimizers[worker])

    def step(self, worker: int, worker_step: int, seed: int, rate: float, momentum: float) -> float:
        """Trains a worker's replica with one batch. Blocks until that is done.

        Returns:
            Loss of the batch, before the update.
        """
        device = self._devices.workers[worker]
        numbers = constant_on(device, [worker_step, seed, self._updates[worker]], tf.int64)
        hyper_parameters = constant_on(device, [rate, momentum], tf.float32)
        with tf.device(self._devices.steps[worker]):
            loss = self._steps[worker](
                *self._worker_data[worker],
                numbers,
                hyper_parameters,
                self._variables[worker].handle,
            )
        self._updates[worker] += 1
        return float(loss)

    def average(self, workers: Sequence[int]) -> list[int]:
        """Gives these workers the mean of their parameters and statistics; slots stay local.

        Returns:
            Those that could not be reached, which have no part in it.
        """
        parts, lost = self._averaged_parts(workers)
        if not parts:
            return lost
        mean = tf.constant(np.mean(list(parts.values()), axis=0))
        for worker in parts:
            try:
                self._write(worker, self._overwrite_averaged_part, mean)
            except tf.errors.OpError:
                lost.append(worker)
        return lost

    def mean(self, workers: Iterable[int]) -> ModelState:
        """The mean of these replicas, slots included; the workers keep what they have.

        Raises:
            Exception: One of TensorFlow's, where none of them could be reached.
        """
        values = {}
        unreached: Exception = tf.errors.UnavailableError(None, None, "no replica to average")
        for worker in workers:
            try:
                values[worker] = self._variables[worker].numpy()
            except tf.errors.OpError as error:
                unreached = error
        if not values:
            raise unreached
        flat = np.mean(list(values.values()), axis=0)
        parameters, statistics, slots = np.split(flat, np.cumsum(self._sizes)[:-1])
        updates = max(self._updates[worker] for worker in values)
        return ModelState(parameters, slots, statistics, updates)

    def snapshot(self, workers: Iterable[int]) -> tuple[Any, Any]:
        """Mean parameters and statistics; a replica may be a step ahead of another.

        Blocks until they are taken, so that no later update is in them.

        Raises:
            Exception: One of TensorFlow's, where none of them could be reached.
        """
        parts, lost = self._averaged_parts(workers)
        if not parts:
            raise tf.errors.UnavailableError(None, None, f"no answer from workers {lost}")
        parameters, statistics = np.split(np.mean(list(parts.values()), axis=0), self._sizes[:1])
        return parameters, statistics

    def _empty(self, worker: int) -> Any:
        with tf.device(self._devices.steps[worker]):
            return tf.Variable(tf.zeros(sum(self._sizes)), name=f"replica_{worker}")

    def _trace(self) -> None:
        handle = self._variables[0].handle
        traced = {
            id(optimizer): self._traced(optimizer) for optimizer in dict.fromkeys(self._optimizers)
        }
        self._steps = [traced[id(optimizer)] for optimizer in self._optimizers]
        self._read_averaged_part = concrete(self._traced_read_averaged_part, handle)
        self._overwrite = concrete(_traced_overwrite, tf.zeros(sum(self._sizes)), handle)
        self._overwrite_averaged_part = concrete(
            self._traced_overwrite_averaged_part, tf.zeros(self._averaged_size), handle
        )
        # Once on each worker, so that no trial pays for it.
        workers = range(len(self._variables))
        for worker in workers:
            self.step(worker, 0, 0, 0.0, 0.0)
        self.scatter(self.mean(workers), workers)
        self.average(workers)

    def _traced(self, optimizer: Optimizer) -> Any:
        return concrete(
            partial(self._traced_step, optimizer),
            *self._worker_data[0],
            tf.zeros([3], tf.int64),
            tf.zeros([2]),
            self._variables[0].handle,
        )

    def _averaged_parts(self, workers: Iterable[int]) -> tuple[dict[int, Vector], list[int]]:
        """What is averaged, of each worker, and those that could not be reached."""
        asked: dict[int, Any] = {}
        parts, lost = {}, []
        for worker in workers:
            try:
                with tf.device(self._devices.steps[worker]):
                    asked[worker] = self._read_averaged_part(self._variables[worker].handle)
            except tf.errors.OpError:
                lost.append(worker)
        # Asked of all before the first answer is waited for.
        for worker, part in asked.items():
            try:
                parts[worker] = part.numpy()
            except tf.errors.OpError:
                lost.append(worker)
        return parts, lost

    def _write(self, worker: int, function: Any, value: Any) -> None:
        with tf.device(self._devices.steps[worker]):
            written = function(tf.identity(value), self._variables[worker].handle)
        # A call to a server returns before it is carried out; what it returns is there after.
        written.numpy()

    def _traced_step(
        self,
        optimizer: Optimizer,
        inputs: Any,
        labels: Any,
        numbers: Any,
        hyper_parameters: Any,
        replica: Any,
    ) -> Any:
        worker_step, seed, updates = tf.unstack(numbers)
        rate, momentum = tf.unstack(hyper_parameters)
        parameters, statistics, slots = tf.split(self._value(replica), self._sizes)
        with tf.device(self._devices.beside_steps):
            batch = self._function.batch(inputs, labels, worker_step, seed)
        loss, gradient, contribution = self._function.gradient(parameters, statistics, *batch)
        parameters, slots = optimizer.apply(parameters, slots, updates, gradient, rate, momentum)
        statistics = self._function.move(statistics, contribution)
        value = tf.concat([parameters, statistics, slots], 0)
        assigned = _assign(replica, value)
        with tf.device(self._devices.beside_steps), tf.control_dependencies([assigned]):
            return tf.cast(loss, tf.float32)

    def _traced_read_averaged_part(self, replica: Any) -> Any:
        return tf.identity(self._value(replica)[: self._averaged_size])

    def _traced_overwrite_averaged_part(self, averaged: Any, replica: Any) -> Any:
        slots = self._value(replica)[self._averaged_size :]
        return _traced_overwrite(tf.concat([averaged, slots], 0), replica)

    def _value(self, replica: Any) -> Any:
        value = tf.raw_ops.ReadVariableOp(resource=replica, dtype=tf.float32)
        return tf.ensure_shape(value, [sum(self._sizes)])


def _optimizers(workload: Workload, function: ModelFunction, devices: Devices) -> list[Optimizer]:
    """One for each worker, on its device, or one for all where they can share it."""
    one = make_optimizer(workload, function.parameters)
    if one.is_reentrant:
        return [one] * len(devices.workers)
    found = []
    for device in devices.steps:
        with tf.device(device):
            found.append(make_optimizer(workload, function.parameters))
    return found


def _traced_overwrite(value: Any, replica: Any) -> Any:
    with tf.control_dependencies([_assign(replica, value)]):
        return tf.constant(True)


def _assign(replica: Any, value: Any) -> Any:
    return tf.raw_ops.AssignVariableOp(resource=replica, value=value)
