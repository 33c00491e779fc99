"""A workload, traced by the chief for whoever computes it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.trainers.cluster.exchange.parameter_server import Sizes
from syncswitch.trainers.cluster.exchange.plans import ServerPlan, WorkerPlan
from syncswitch.trainers.cluster.exchange.update import Update, momentum_update, traced_update
from syncswitch.trainers.job.data import AnyData
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.optimizer import MomentumSGD, make_optimizer
from syncswitch.trainers.model.shipped_source import ShippedSource
from syncswitch.trainers.model.state import StateForm
from syncswitch.trainers.model.steps import (
    ShippedFunction,
    flat_update,
    trace_step,
    trace_update,
)
from syncswitch.trainers.model.tensorflow_api import tf

# Batches are made where the data lie, and are all that moves to the GPU besides parameters.
BESIDE_GPU = "/device:CPU:0"


class Program:
    """What workers and a parameter server compute; traced once.

    Args:
        workload: What is trained.
        data: Of the workload.
        has_gpus: Whether workers compute on GPUs of their own.

    Attributes:
        data: Of the workload.
        function: The model.
        form: Of its states.
        sizes: Of its vectors.
        step: See `trace_step`.
    """

    def __init__(self, workload: Workload, data: AnyData, *, has_gpus: bool = False) -> None:
        self._workload = workload
        self.data = data
        self._has_gpus = has_gpus
        self.function = ModelFunction(workload, data)
        self._optimizer = make_optimizer(workload, self.function.parameters)
        self.form = StateForm(workload, self.function, self._optimizer)
        layouts = (self.form.parameters, self.form.statistics, self.form.slots)
        self.sizes = Sizes(*(layout.size for layout in layouts))
        try:
            self.step = trace_step(self.function, data, BESIDE_GPU if has_gpus else None)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise WorkloadError(
                f"workload {workload.name!r}: model, data and loss do not fit together: "
                f"{one_line(error)}"
            ) from error

    @property
    def name(self) -> str:
        """Of the workload."""
        return self._workload.name

    @property
    def decay(self) -> Vector:
        """By which a batch multiplies the statistics."""
        return self.function.statistics_decay

    def new_update(self) -> Update:
        """The optimizer, for one holder of parameters in this process."""
        if isinstance(self._optimizer, MomentumSGD):
            return momentum_update
        # Each with variables of its own.
        optimizer = make_optimizer(self._workload, self.function.parameters)
        return traced_update(flat_update(trace_update(optimizer, self.sizes.parameters)))

    def server_plan(self, workers: int) -> ServerPlan:
        """For a parameter server in another process."""
        return ServerPlan(self.sizes, self.decay, self._shipped_update, workers)

    @cached_property
    def worker_plan(self) -> WorkerPlan:
        """For a worker in another process."""
        return WorkerPlan(
            self.sizes,
            self.decay,
            self._shipped_update,
            ShippedFunction.of(self.step, self._workload),
            ShippedSource.of(self.data.train, self._workload),
            self.function.batch_size,
            self._compiled,
        )

    @property
    def _compiled(self) -> ShippedFunction | None:
        if not self._has_gpus:
            return None
        traced = trace_step(self.function, self.data, BESIDE_GPU, is_compiled=True)
        return ShippedFunction.of(traced, self._workload)

    @cached_property
    def _shipped_update(self) -> Any:
        if isinstance(self._optimizer, MomentumSGD):
            return None
        traced = trace_update(self._optimizer, self.sizes.parameters)
        return ShippedFunction.of(traced, self._workload)
