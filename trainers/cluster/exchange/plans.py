"""What the parts of a cluster are told to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.trainers.cluster.exchange.parameter_server import Sizes
from syncswitch.trainers.cluster.exchange.wire import Address
from syncswitch.trainers.job.data import Array
from syncswitch.trainers.model.layout import Vector

if TYPE_CHECKING:
    from syncswitch.trainers.model.steps import ShippedFunction

CHIEF, SERVER, WORKER = "chief", "ps", "worker"

Part = tuple[str, int]
"""Role and number, such as `("worker", 2)`."""

PARAMETER_SERVER: Part = (SERVER, 0)


@dataclass(frozen=True)
class Hello:
    """The first word of a process to its chief.

    Attributes:
        part: What it is.
        token: Of the process: all its wires tell the same, those of another one another.
        address: Where others reach it; None for a wire on which it only says that it lives.
    """

    part: Part
    token: str
    address: Address | None


@dataclass(frozen=True)
class ServerPlan:
    """Of a parameter server.

    Attributes:
        sizes: Of the vectors.
        workers: n.
        decay: Of the statistics.
        update: The optimizer; None for SGD with momentum.
    """

    sizes: Sizes
    workers: int
    decay: Vector
    update: ShippedFunction | None


@dataclass(frozen=True)
class WorkerPlan:
    """Of a worker.

    Attributes:
        sizes: Of the vectors.
        step: Of `trace_step`.
        inputs: Training inputs.
        labels: Training labels.
        decay: Of the statistics.
        update: The optimizer; None for SGD with momentum.
        compiled: The step as XLA compiles it, for a worker with a GPU.
    """

    sizes: Sizes
    step: ShippedFunction
    inputs: Array
    labels: Array
    decay: Vector
    update: ShippedFunction | None
    compiled: ShippedFunction | None = None
