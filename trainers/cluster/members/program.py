"""A workload's computations, traced by the chief for all parts of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from syncswitch.storage.errors import one_line
from syncswitch.trainers.cluster.exchange.plans import ServerPlan, Sizes, WorkerPlan
from syncswitch.trainers.cluster.exchange.shards import (
    Shard,
    cut_anywhere,
    cut_between_variables,
    uncut,
)
from syncswitch.trainers.job.data import AnyData
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.adam import AdamForm
from syncswitch.trainers.model.batches import row_specs
from syncswitch.trainers.model.function import (
    ModelFunction,
    make_ahead,
    make_projection,
    make_update,
    trace_ahead,
    trace_ids,
    trace_projection,
    trace_step,
    trace_update,
)
from syncswitch.trainers.model.optimizer import (
    KerasOptimizer,
    MomentumSGD,
    Optimizer,
    make_optimizer,
)
from syncswitch.trainers.model.own_slots import AheadUpdate
from syncswitch.trainers.model.shipped import ShippedFunction, ShippedSource
from syncswitch.trainers.model.state import CheckpointManager
from syncswitch.trainers.model.tensorflow_api import tf
from syncswitch.trainers.model.updates import Projection, Update

# Batches are made where the data are; only they and the parameters move to the GPU.
BESIDE_GPU = "/device:CPU:0"


class Program:
    """The computations of workers and parameter servers, traced once.

    `step` computes loss and gradients, see `trace_step`. `ids` finds the embedding rows of a batch,
    see `trace_ids`; None without embeddings. `decay` has the factors by which a batch multiplies
    the statistics.

    Raises:
        WorkloadError: Model, data and loss do not fit together.
    """

    def __init__(self, workload: Workload, data: AnyData, *, has_gpus: bool = False) -> None:
        self.workload = workload
        self.data = data
        self._has_gpus = has_gpus
        self.function = ModelFunction(workload, data)
        self.decay = self.function.statistics_decay
        self.optimizer = make_optimizer(workload, self.function.parameters)
        self.checkpoints = CheckpointManager(workload, self.function, self.optimizer)
        layouts = (self.checkpoints.parameters, self.checkpoints.statistics, self.checkpoints.slots)
        self.sizes = Sizes(*(layout.size for layout in layouts))
        try:
            self.step = trace_step(self.function, data, BESIDE_GPU if has_gpus else None)
            specs = row_specs(data, workload.batch_size)
            self.ids = (
                trace_ids(self.function, workload, specs) if self.function.embeddings else None
            )
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise workload.error(
                f"model, data and loss do not fit together: {one_line(error)}"
            ) from error

    def new_update(self) -> Update:
        """Makes an optimizer for one holder of parameters in this process."""
        optimizer = self.optimizer
        if not isinstance(optimizer, MomentumSGD):
            # Each has its own variables.
            optimizer = make_optimizer(self.workload, self.function.parameters)
        return make_update(optimizer, self.sizes.parameters, self.project)

    def new_ahead(self) -> AheadUpdate | None:
        """Makes the update of a worker with slots of its own in this process."""
        if isinstance(self.optimizer, MomentumSGD):
            return None
        optimizer = make_optimizer(self.workload, self.function.parameters)
        return make_ahead(optimizer, self.sizes.parameters)

    @cached_property
    def project(self) -> Projection | None:
        """The projection of parameters in this process; None without constraints."""
        return make_projection(self.optimizer, self.sizes.parameters)

    def shards(self, servers: int) -> tuple[Shard, ...]:
        """Divides a state; raises UserError if the optimizer needs the whole state in one place."""
        optimizer = self.optimizer
        if servers == 1:
            return uncut(self.sizes)
        sizes = self.checkpoints.parameters.sizes
        if isinstance(optimizer, KerasOptimizer):
            slots = optimizer.slots_of_variables(servers)
        elif optimizer.has_constraints:
            slots = [(size, number) for number, size in enumerate(sizes)]
        else:
            return cut_anywhere(self.sizes, servers)
        return cut_between_variables(sizes, self.checkpoints.statistics.sizes, slots, servers)

    def server_plans(self, shards: Sequence[Shard], workers: int) -> list[ServerPlan]:
        return [
            ServerPlan(
                shard.sizes,
                self.decay[shard.statistics],
                update,
                workers,
                shard.model,
                self.sizes.model,
                self.checkpoints.shard_plan(number, len(shards)),
                project=project,
                has_averages=self.optimizer.has_averages,
            )
            for number, shard in enumerate(shards)
            for update, project in [self._shipped_of(shard)]
        ]

    @cached_property
    def worker_plan(self) -> WorkerPlan:
        compiled = ids = None
        update, project = self._shipped
        if self.ids is not None:
            ids = ShippedFunction.of(self.ids, self.workload)
        elif self._has_gpus:
            # Not with embeddings: XLA would compile anew for each number of rows.
            traced = trace_step(self.function, self.data, BESIDE_GPU, is_compiled=True)
            compiled = ShippedFunction.of(traced, self.workload)
        return WorkerPlan(
            self.sizes,
            self.decay,
            update,
            ShippedFunction.of(self.step, self.workload),
            ShippedSource.of(self.data.train, self.workload),
            self.function.batch_size,
            compiled,
            self.function.embeddings,
            ids,
            *self._ahead,
            project=project,
        )

    @cached_property
    def _shipped(self) -> tuple[ShippedFunction | None, ShippedFunction | None]:
        """Update and projection of a whole model; None for momentum SGD, and no constraints."""
        return self._ship(self.optimizer, self.sizes.parameters)

    @property
    def _ahead(self) -> tuple[AdamForm | None, ShippedFunction | None]:
        """The optimizer of a worker with slots of its own, as in `WorkerPlan`."""
        optimizer = self.optimizer
        if not isinstance(optimizer, KerasOptimizer):
            return None, None
        if (form := optimizer.adam) is not None:
            return form, None
        traced = trace_ahead(optimizer, self.sizes.parameters)
        return None, ShippedFunction.of(traced, self.workload)

    def _shipped_of(self, shard: Shard) -> tuple[ShippedFunction | None, ShippedFunction | None]:
        optimizer = self.optimizer
        is_cut_anywhere = isinstance(optimizer, MomentumSGD) and not optimizer.has_constraints
        if is_cut_anywhere or shard.sizes == self.sizes:
            return self._shipped
        layout = self.checkpoints.parameters
        starts = list(accumulate(layout.sizes, initial=0))
        first, last = (starts.index(end) for end in (shard.parameters.start, shard.parameters.stop))
        own = make_optimizer(self.workload, layout, slice(first, last))
        return self._ship(own, shard.sizes.parameters)

    def _ship(
        self, optimizer: Optimizer, parameters: int
    ) -> tuple[ShippedFunction | None, ShippedFunction | None]:
        update = None
        if not isinstance(optimizer, MomentumSGD) and parameters:
            update = ShippedFunction.of(trace_update(optimizer, parameters), self.workload)
        project = trace_projection(optimizer, parameters)
        return update, None if project is None else ShippedFunction.of(project, self.workload)
