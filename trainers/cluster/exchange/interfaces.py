"""The calls that parts of a cluster may make on each other, in this process or over a wire.

The types of a call are those by which its messages are read.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, cast, get_type_hints

from syncswitch.trainers.cluster.exchange.plans import (
    Caller,
    Push,
    RowGradients,
    ServerPlan,
    Task,
    WorkerPlan,
)
from syncswitch.trainers.cluster.exchange.security import Address
from syncswitch.trainers.model.embeddings import Ids, RowAccess
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.protocols import AfterAverage
from syncswitch.trainers.protocols.steps import Group

Piece = Literal["model", "mean", "slots", "mean slots", "outer"]
"""What can be fetched of a worker's replica."""


class ServerForChief(Protocol):
    """A parameter server as the chief sees it; see `ParameterServer`."""

    def load(self, state: ModelState) -> None: ...
    def load_slots(self, slots: Vector) -> None: ...
    def mark(self) -> Sequence[int]: ...
    def marked(self) -> ModelState: ...
    def snapshot(self, ids: Sequence[Ids]) -> Sequence[Vector]: ...
    def apply(self, group: Group, rate: float, momentum: float) -> int: ...
    def fence(self, worker: int) -> tuple[int, int]: ...


class ServerProcess(ServerForChief, RowAccess, Protocol):
    """A parameter server in another process, which has to be built first."""

    def build(self, plan: ServerPlan) -> None: ...


class ServerForWorkers(Protocol):
    """A parameter server as a worker in another process sees it.

    Parameters and gradients are sent only where no memory is shared.
    """

    def pull(
        self, caller: Caller, ids: Sequence[Ids]
    ) -> tuple[int, int, Vector | None, list[Vector]]: ...
    def push(self, caller: Caller, task: Task, sent: Vector | None, rows: RowGradients) -> int: ...


class WorkerForChief(Protocol):
    """A worker as the chief sees it; see `Worker`. Members of a group are given by address."""

    def step(self, task: Task) -> Push: ...
    def take(self, state: ModelState, outer: Vector) -> None: ...
    def take_slots(self, slots: Vector, updates: int, is_bounded: bool) -> None: ...
    def reduce(self, position: int, peers: Sequence[Address], after: AfterAverage) -> None: ...
    def gather(self, position: int, peers: Sequence[Address], after: AfterAverage) -> None: ...
    def commit(self, after: AfterAverage) -> None: ...


class WorkerProcess(WorkerForChief, Protocol):
    """A worker in another process, which has to be built and connected first.

    It is told the names, addresses and shards of the parameter servers.
    """

    def build(self, plan: WorkerPlan) -> None: ...
    def connect(self, caller: Caller, servers: Sequence[tuple[str, Address, slice]]) -> None: ...


class WorkerForOthers(Protocol):
    """A worker as the chief and other workers see it, even during a step; see `Worker`."""

    def fetch(self, what: Piece, start: int, stop: int) -> Vector: ...


Calls = Mapping[str, tuple[Any, Any]]
"""The calls that a process answers, with the types of arguments and results."""


def calls_of(interface: type) -> Calls:
    """Returns the calls of an interface, with the types by which messages are read."""
    found, kind = dict[str, tuple[Any, Any]](), cast(Any, tuple)
    for name, function in inspect.getmembers(interface, inspect.isfunction):
        if not name.startswith("_"):
            *arguments, result = get_type_hints(function).values()
            found[name] = kind[tuple(arguments)], result
    return found


CHIEF_TO_SERVER = calls_of(ServerProcess)
CHIEF_TO_WORKER = calls_of(WorkerProcess)
WORKER_TO_SERVER = calls_of(ServerForWorkers)
TO_WORKER = calls_of(WorkerForOthers)
