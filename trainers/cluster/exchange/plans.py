"""The protocol: what the parts of a cluster tell and answer each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from syncswitch.trainers.cluster.exchange.handshake import Address, Part
from syncswitch.trainers.cluster.exchange.parameter_server import Caller, RowGradients, Sizes
from syncswitch.trainers.job.embeddings import EmbeddingTable
from syncswitch.trainers.model.embeddings.shard import NO_EMBEDDINGS, Ids, ShardPlan
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.model.shipped import ShippedFunction, ShippedSource
from syncswitch.trainers.protocols import Exchange

if TYPE_CHECKING:
    from syncswitch.trainers.model.steps import EmbeddingSteps

CHIEF, SERVER, WORKER = "chief", "ps", "worker"

PARAMETER_SERVER: Part = (SERVER, 0)


class StepError(Exception):
    """A step cannot be computed: model, data and loss do not fit, or the memory is too small."""


@dataclass(frozen=True)
class Hello:
    """The first word of a process to its chief.

    Attributes:
        token: Names the process: the same on all its wires, another for each process.
        address: Where others reach it; None for a wire on which it only says that it lives.
    """

    token: str
    address: Address | None


@dataclass(frozen=True)
class Plan:
    """The plan of a part that holds parameters.

    Attributes:
        sizes: Lengths of the vectors.
        decay: Factor by which a batch multiplies the statistics.
        update: The optimizer; None for SGD with momentum.
    """

    sizes: Sizes
    decay: Vector
    update: ShippedFunction | None


@dataclass(frozen=True)
class ServerPlan(Plan):
    """The plan of a parameter server.

    Attributes:
        workers: n.
        shard: Its piece of what workers pull.
        model: Length of what they pull.
        embeddings: Its rows of embeddings.
    """

    workers: int
    shard: slice
    model: int
    embeddings: ShardPlan = NO_EMBEDDINGS


@dataclass(frozen=True)
class EmbeddingsPlan:
    """The embeddings, for a worker.

    Attributes:
        embeddings: The embeddings of the model.
        ids: See `trace_ids`.
    """

    embeddings: tuple[EmbeddingTable, ...]
    ids: ShippedFunction

    def restored(self) -> EmbeddingSteps:
        """The same in the process of the worker, ready to use."""
        from syncswitch.trainers.model.steps import EmbeddingSteps

        return EmbeddingSteps(self.embeddings, self.ids.restored())


@dataclass(frozen=True)
class WorkerPlan(Plan):
    """The plan of a worker.

    Attributes:
        step: Made by `trace_step`.
        source: Gives the training examples.
        batch_size: B.
        compiled: The step as XLA compiles it, for a worker with a GPU.
        embeddings: Embeddings, if there are any.
    """

    step: ShippedFunction
    source: ShippedSource
    batch_size: int
    compiled: ShippedFunction | None
    embeddings: EmbeddingsPlan | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """How a worker is slowed on purpose.

    Attributes:
        seconds: Added between its gradient and its push.
        slowdown: Factor on the time of its gradient.
    """

    seconds: float = 0.0
    slowdown: float = 1.0


NO_HOLD = Hold()


@dataclass(frozen=True, slots=True)
class Task:
    """One worker-step, or several at once.

    Attributes:
        number: By which the worker's steps are told apart; each one's is higher.
        worker_step: Its number in the job, which also chooses its batch.
        seed: The run's.
        exchange: How the gradient is exchanged.
        rate: Learning rate, where the worker's gradient alone is an update.
        momentum: Momentum, where the worker's gradient alone is an update.
        hold: Slows it.
        taken: Parameter servers that have this worker-step from a worker that died over it.
        batches: So many worker-steps, from this one on: the mean of their gradients is pushed.
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

    @property
    def parts(self) -> list[Task]:
        """One for each batch."""
        if self.batches == 1:
            return [self]
        steps = range(self.worker_step, self.worker_step + self.batches)
        return [replace(self, worker_step=step, batches=1) for step in steps]


class Push(NamedTuple):
    """Acknowledgement of one worker-step, after the parameter server has taken it in.

    Attributes:
        loss: The batch's, before the update.
        pulled_updates: Updates applied when the worker read the parameters; where there are several
            parameter servers, by the first.
        pushed_updates: Updates applied when its gradient had arrived; for a protocol that applies
            each push, this one included.
    """

    loss: float
    pulled_updates: int
    pushed_updates: int


Calls = Mapping[str, tuple[Any, Any]]
"""The calls that one process may make of another, with types of arguments and results."""

CHIEF_TO_SERVER: Calls = {
    "build": (tuple[ServerPlan], None),
    "load": (tuple[ModelState], None),
    "mark": (tuple[()], list[int]),
    "marked": (tuple[()], ModelState),
    "snapshot": (tuple[list[Ids]], list[Vector]),
    "apply_round": (tuple[list[int], float, float], int),
    "apply_buffer": (tuple[list[int], list[int], float, float], int),
    "fence": (tuple[int], tuple[int, int]),
    "load_rows": (tuple[int, int, int, Vector], None),
    "read_rows": (tuple[int, int, int, int], Vector),
    "end_read": (tuple[()], None),
}
CHIEF_TO_WORKER: Calls = {
    "build": (tuple[WorkerPlan], None),
    # Names, addresses and shards of the parameter servers.
    "connect": (tuple[Caller, list[tuple[str, Address, slice]]], None),
    "step": (tuple[Task], Push),
    "take": (tuple[ModelState], None),
    "reduce": (tuple[int, list[Address]], None),
    "gather": (tuple[int, list[Address]], None),
    "commit": (tuple[()], None),
}
WORKER_TO_SERVER: Calls = {
    # Buffers and gradients themselves only where no memory is shared.
    "pull": (tuple[Caller, list[Ids]], tuple[int, int, Vector | None, list[Vector]]),
    "push_update": (tuple[Caller, int, Vector | None, float, float, RowGradients], int),
    "push_gradient": (tuple[Caller, int, Vector | None, int | None, RowGradients], int),
}
TO_WORKER: Calls = {"fetch": (tuple[Literal["model", "mean", "slots"], int, int], Vector)}
