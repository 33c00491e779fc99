"""What the parts of a cluster tell each other: plans, tasks, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from syncswitch.trainers.cluster.exchange.security import Address
from syncswitch.trainers.job.embeddings import EmbeddingTable
from syncswitch.trainers.model.adam import AdamForm
from syncswitch.trainers.model.embeddings import NO_EMBEDDINGS, RowGradient, ShardPlan
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.shipped import ShippedFunction, ShippedSource
from syncswitch.trainers.protocols import Exchange

CHIEF, SERVER, WORKER = "chief", "ps", "worker"

RowGradients = Sequence[RowGradient]
"""Gradients of embedding rows, one entry for each table."""


class StepError(Exception):
    """A step cannot be computed: model, data and loss do not fit together, or memory is short."""


@dataclass(frozen=True)
class Sizes:
    """The lengths of the flat vectors of a training."""

    parameters: int
    statistics: int
    slots: int

    @property
    def model(self) -> int:
        """The length of what a worker pulls: parameters and statistics."""
        return self.parameters + self.statistics


class Caller(NamedTuple):
    """A worker that calls, and the number of its process: 0, then 1 for its replacement, ..."""

    worker: int
    incarnation: int


@dataclass(frozen=True)
class Hello:
    """The first message on a wire to the chief.

    `token` is the same on all wires of a process, and different for each; `address` is None on the
    wire for heartbeats.
    """

    token: str
    address: Address | None


@dataclass(frozen=True)
class Plan:
    """The plan of a part that holds parameters.

    `update` is the optimizer; None for SGD with momentum. `project` brings parameters back to where
    constraints allow them; None without any.
    """

    sizes: Sizes
    decay: Vector
    update: ShippedFunction | None
    project: ShippedFunction | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class ServerPlan(Plan):
    """The plan of a parameter server.

    `shard` is its piece of what workers pull, `model` the length of all of that. With
    `has_averages` the first slots are averages, with which models are tested and saved.
    """

    workers: int
    shard: slice
    model: int
    embeddings: ShardPlan = NO_EMBEDDINGS
    has_averages: bool = False


@dataclass(frozen=True)
class WorkerPlan(Plan):
    """The plan of a worker.

    `compiled` is the step for XLA to compile, for a worker with a GPU. `ids` finds the rows that a
    batch needs, see `trace_ids`; None without embeddings. `adam` or else `ahead` is the optimizer
    of a worker with slots of its own, see `AheadUpdate`; None for SGD with momentum.
    """

    step: ShippedFunction
    source: ShippedSource
    batch_size: int
    compiled: ShippedFunction | None
    embeddings: tuple[EmbeddingTable, ...] = ()
    ids: ShippedFunction | None = None
    adam: AdamForm | None = None
    ahead: ShippedFunction | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """How a worker is slowed down on purpose.

    `seconds` pass between computing a gradient and pushing it; `slowdown` is a factor on the time
    that computing it takes.
    """

    seconds: float = 0.0
    slowdown: float = 1.0


NO_HOLD = Hold()


@dataclass(frozen=True, slots=True)
class Task:
    """A worker-step, or several consecutive ones whose mean gradient is pushed.

    `number` is higher than those of all tasks before. `worker_step`, the number of the first step
    in the job, also selects its batch. `rate` and `momentum` are for a gradient that is an update
    by itself. `taken` are the parameter servers that have this step already, from a worker that
    died while it pushed. `own_workers` is the number of workers if each has slots of its own, and
    pushes what is to be added to the parameters; otherwise 0.
    """

    number: int
    worker_step: int
    seed: int
    exchange: Exchange
    rate: float = 0.0
    momentum: float = 0.0
    hold: Hold = NO_HOLD
    taken: tuple[int, ...] = ()
    batches: int = 1
    own_workers: int = 0

    @property
    def microsteps(self) -> list[Task]:
        """The single worker-steps, each a task."""
        if self.batches == 1:
            return [self]
        steps = range(self.worker_step, self.worker_step + self.batches)
        return [replace(self, worker_step=step, batches=1) for step in steps]


class Push(NamedTuple):
    """The result of a task, after the parameter server has received the gradient.

    `loss` is that of the batch, before the update. The numbers of updates are those before the
    pull and once the gradient had arrived, this update included; of several parameter servers,
    those of the first. `gradient_square` is the squared length of a gradient that was applied to a
    replica. `compute_seconds` is what its gradients took, the wait for a processor included.
    """

    loss: float
    pulled_updates: int
    pushed_updates: int
    gradient_square: float = 0.0
    compute_seconds: float = 0.0
