"""Calls over wires to parameter servers and workers in other processes.

The types of a call are those by which its messages are read.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, get_type_hints

import msgspec

from syncswitch.storage.errors import UserError, WorkloadError, one_line
from syncswitch.trainers.cluster.exchange.parameter_server import FencedError, PulledModel
from syncswitch.trainers.cluster.exchange.plans import (
    WORKER,
    Caller,
    Push,
    RowGradients,
    ServerPlan,
    StepError,
    Task,
    WorkerPlan,
)
from syncswitch.trainers.cluster.exchange.security import Address, Identity
from syncswitch.trainers.cluster.exchange.vectors import Block, aligned
from syncswitch.trainers.cluster.exchange.wire import Message, Wire, dial
from syncswitch.trainers.job.sources import Array
from syncswitch.trainers.model.embeddings import Ids, gradients_for, ids_for, rows_of
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.protocols import AfterAverage
from syncswitch.trainers.protocols.steps import Group

Piece = Literal["model", "mean", "slots", "mean slots", "outer"]
"""What can be fetched of a worker's replica."""

Calls = Mapping[str, tuple[Any, Any]]
"""The calls that a process answers, with the types of arguments and results."""


class LostError(Exception):
    """The other process is gone, or was given up."""


class RemoteError(Exception):
    """A call raised an error in the other process, which goes on."""


Methods = Mapping[str, Callable[..., Any]]


class Remote:
    """The far end of a wire; it can be called from any thread, one call at a time.

    Once it is gone, calls raise `lost`. `calling` is held during a call.
    """

    def __init__(
        self, wire: Wire, name: str, calls: Calls, lost: type[Exception] = LostError
    ) -> None:
        self.wire = wire
        self.name = name
        self._calls = calls
        self._lost = lost
        self.calling = threading.Lock()

    def call(self, method: str, *arguments: Any, into: Vector | None = None) -> Any:
        """Calls a method and waits for its result.

        For `into` see `Wire.receive`.

        Raises:
            LostError: The other end is gone; whether it completed the call is not known.
            FencedError: The caller was replaced by another process.
            StepError: The step cannot be computed.
            RemoteError: The method raised something else.
        """
        with self.calling:
            self.ask(method, arguments)
            return self.answer(method, into)

    def ask(self, method: str, arguments: Sequence[Any]) -> None:
        """Begins a call, while `calling` is held; `answer` completes it."""
        try:
            self.wire.send((method, tuple(arguments)))
        except OSError as error:
            raise self._gone() from error

    def answer(self, method: str, into: Vector | None = None) -> Any:
        try:
            message = self.wire.receive(into)
            failure, _ = message.read(_ANSWER)
            kind = str if failure is not None else self._calls[method][1]
            _, result = message.read(tuple[str | None, kind])  # type: ignore[valid-type]
        except (OSError, EOFError) as error:
            raise self._gone() from error
        if failure is not None:
            raise _ERRORS.get(failure, RemoteError)(result)
        return result

    def close(self) -> None:
        """Closes the wire, even while another thread waits for an answer."""
        self.wire.close()

    def _gone(self) -> Exception:
        self.wire.close()
        return self._lost(f"{self.name} is gone")


class ServerForChief(Protocol):
    """What the chief asks of all parameter servers at once, by `call_all`."""

    def load(self, state: ModelState) -> None: ...
    def load_slots(self, slots: Vector) -> None: ...
    def mark(self) -> Sequence[int]: ...
    def marked(self) -> ModelState: ...
    def snapshot(self, ids: Sequence[Ids]) -> Sequence[Vector]: ...
    def apply(self, group: Group, rate: float, momentum: float) -> int: ...
    def fence(self, worker: int) -> tuple[int, int]: ...


class ServerForWorkers(Protocol):
    """A parameter server as a worker in another process sees it.

    Parameters and gradients are sent only where no memory is shared.
    """

    def pull(
        self, caller: Caller, ids: Sequence[Ids]
    ) -> tuple[int, int, Vector | None, list[Vector]]: ...
    def push(self, caller: Caller, task: Task, sent: Vector | None, rows: RowGradients) -> int: ...


class RemoteShard(Remote):
    """A parameter server in another process, as the chief reads and writes its rows."""

    def load_rows(self, table: int, part: int, start: int, values: Array) -> None:
        self.call("load_rows", table, part, start, values)

    def load_memory(self, state: Array) -> None:
        self.call("load_memory", state)

    def read_rows(self, table: int, part: int, start: int, stop: int) -> Array:
        return cast(Array, self.call("read_rows", table, part, start, stop))

    def read_memory(self) -> Array:
        return cast(Array, self.call("read_memory"))

    def end_read(self) -> None:
        self.call("end_read")


class RemoteWorker(Remote):
    """A worker in another process, as the chief calls it; see `Worker`.

    It is told the names, addresses and shards of the parameter servers, and the addresses of the
    workers in its group.
    """

    def __init__(self, wire: Wire, name: str) -> None:
        super().__init__(wire, name, CHIEF_TO_WORKER)

    def build(self, plan: WorkerPlan) -> None:
        self.call("build", plan)

    def connect(self, caller: Caller, servers: Sequence[tuple[str, Address, slice]]) -> None:
        self.call("connect", caller, servers)

    def step(self, task: Task) -> Push:
        return cast(Push, self.call("step", task))

    def take(self, state: ModelState, outer: Vector) -> None:
        self.call("take", state, outer)

    def take_slots(self, slots: Vector, updates: int, is_bounded: bool, most_raise: float) -> None:
        self.call("take_slots", slots, updates, is_bounded, most_raise)

    def reduce(self, position: int, peers: Sequence[Address], after: AfterAverage) -> None:
        self.call("reduce", position, peers, after)

    def gather(self, position: int, peers: Sequence[Address], after: AfterAverage) -> None:
        self.call("gather", position, peers, after)

    def commit(self, after: AfterAverage) -> None:
        self.call("commit", after)


@dataclass(frozen=True)
class Call:
    """A call, for `call_all`. For `into` see `Wire.receive`."""

    remote: Remote
    method: str
    arguments: Sequence[Any]
    into: Vector | None = None


def call_all(calls: Sequence[Call]) -> list[Any]:
    """Makes several calls at the same time, and returns their results.

    All answers are awaited even if one is an error, so that everybody can be called again. Raises
    what `Remote.call` does; a loss takes precedence over other errors.
    """
    results: list[Any] = []
    asked: list[Call] = []
    errors: list[Exception] = []
    with ExitStack() as held:
        for call in calls:
            held.enter_context(call.remote.calling)
        for call in calls:
            try:
                call.remote.ask(call.method, call.arguments)
                asked.append(call)
            except Exception as error:
                errors.append(error)
        for call in asked:
            try:
                results.append(call.remote.answer(call.method, call.into))
            except Exception as error:
                errors.append(error)
    if errors:
        answered = (FencedError, StepError, UserError, RemoteError)
        raise min(errors, key=lambda error: isinstance(error, answered))
    return results


_ERRORS: Mapping[str, type[Exception]] = {
    error.__name__: error for error in (FencedError, LostError, StepError, UserError, WorkloadError)
}


_REFUSED = RemoteError.__name__
_ANSWER = tuple[str | None, msgspec.Raw]
_ASKED = tuple[str, msgspec.Raw]


def serve(wire: Wire, calls: Calls, methods: Methods, into: Vector | None = None) -> None:
    """Answers calls until the other end is gone.

    Those that `methods` lacks cannot be called yet. For `into` see `Wire.receive`.
    """
    with suppress(OSError, EOFError):
        while True:
            wire.send(_answer(wire.receive(into), calls, methods))
    wire.close()


def _answer(message: Message, calls: Calls, methods: Methods) -> tuple[str | None, Any]:
    """Returns the answer to a call: the name and text of an error, or None and the result."""
    method, _ = message.read(_ASKED)
    if method not in calls:
        return _REFUSED, f"{method!r} may not be called here"
    if method not in methods:
        return _REFUSED, f"{method!r} cannot be called yet"
    try:
        _, arguments = message.read(tuple[str, calls[method][0]])  # type: ignore[misc]
        return None, methods[method](*arguments)
    except Exception as error:
        failure = type(error).__name__
        return failure, str(error) if failure in _ERRORS else one_line(error)


class RemoteServer:
    """A parameter server in another process, as a worker sees it.

    `shard` is its piece of what workers pull, `computed` the memory for the worker's results.
    `buffers` are None where no memory is shared.
    """

    def __init__(self, wire: Wire, name: str, shard: slice, computed: Block) -> None:
        rows = wire.receive().read(int | None)
        self.remote = Remote(wire, name, WORKER_TO_SERVER)
        self.shard = shard
        self.buffers: list[Vector] | None = None
        if rows is not None:
            size = shard.stop - shard.start
            self.buffers = Block(rows, size, wire.receive_descriptor()).rows
            wire.send_descriptor(computed.descriptor)


class RemoteServers:
    """All parameter servers, used like a single one; each call goes to all at the same time.

    They receive pushes independently, so those of several workers may arrive in a different order
    at each.
    """

    def __init__(self, servers: Sequence[RemoteServer], size: int) -> None:
        self._servers = servers
        self._pulled_updates = [0] * len(servers)
        # The shared memory of a single server can be used as it is; several are joined here.
        needs_copy = len(servers) > 1 or servers[0].buffers is None
        self._model = aligned(size) if needs_copy else aligned(0)

    def pull(self, caller: Caller, ids: Sequence[Ids] = ()) -> PulledModel:
        """See `ParameterServer`; the update count is that of the first server."""
        asked = ids_for(ids, len(self._servers))
        places = [self._model[server.shard] for server in self._servers]
        pulled = call_all(
            [
                Call(server.remote, "pull", (caller, own), None if server.buffers else place)
                for server, own, place in zip(self._servers, asked, places, strict=True)
            ]
        )
        self._pulled_updates = [updates for updates, *_ in pulled]
        model = self._model
        for server, place, (_, buffer, sent, _) in zip(self._servers, places, pulled, strict=True):
            if server.buffers is None:
                if sent is None or sent.shape != place.shape:
                    raise LostError(f"{server.remote.name} sent parameters of another length")
            elif len(self._servers) == 1:
                model = server.buffers[buffer]
            else:
                place[:] = server.buffers[buffer]
        rows = rows_of(ids, [own for *_, own in pulled])
        return PulledModel(self._pulled_updates[0], 0, model, rows)

    def push(self, caller: Caller, task: Task, computed: Vector, rows: RowGradients = ()) -> int:
        """See `ParameterServer`; leaves out the servers that have the step already."""
        calls = {}
        rows_for = gradients_for(rows, len(self._servers))
        for number, server in enumerate(self._servers):
            if number not in task.taken:
                # Shared memory is not sent.
                sent = computed[server.shard] if server.buffers is None else None
                calls[number] = Call(server.remote, "push", (caller, task, sent, rows_for[number]))
        updates: int = call_all(list(calls.values()))[0]
        # Counted as in the first server, so that staleness is the difference to the pull.
        return updates - self._pulled_updates[min(calls)] + self._pulled_updates[0]

    def close(self) -> None:
        for server in self._servers:
            server.remote.close()


class RemotePeer:
    """A worker in another process from which pieces of its replica can be fetched.

    It is connected to at the first fetch.
    """

    def __init__(self, address: Address, own: Identity) -> None:
        self._address = address
        self._own = own
        self._remote: Remote | None = None
        self._is_closed = False

    def fetch(self, what: Piece, start: int, stop: int) -> Vector:
        arguments = "fetch", what, start, stop
        if self._remote is not None:
            # If it is lost, another process may have taken its place.
            with suppress(LostError):
                return cast(Vector, self._remote.call(*arguments))
        name = f"the worker at {self._address}"
        try:
            if not self._is_closed:
                self._remote = Remote(dial(self._address, WORKER, self._own), name, TO_WORKER)
        except OSError as error:
            raise LostError(f"{name} is gone") from error
        if self._is_closed or self._remote is None:
            raise LostError(f"{name} was abandoned")
        return cast(Vector, self._remote.call(*arguments))

    def close(self) -> None:
        """Closes the wire, even while another thread waits for an answer, and for good."""
        self._is_closed = True
        if self._remote is not None:
            self._remote.close()


def calls_of(interface: type) -> Calls:
    """Returns the calls of an interface, with the types by which messages are read."""
    calls, kind = dict[str, tuple[Any, Any]](), cast(Any, tuple)
    for name, function in inspect.getmembers(interface, inspect.isfunction):
        if not name.startswith("_") and not hasattr(Remote, name):
            *arguments, result = get_type_hints(function).values()
            calls[name] = kind[tuple(arguments)], result
    return calls


CHIEF_TO_SERVER: Calls = {
    **calls_of(ServerForChief),
    **calls_of(RemoteShard),
    "build": (tuple[ServerPlan], None),
}
CHIEF_TO_WORKER = calls_of(RemoteWorker)
WORKER_TO_SERVER = calls_of(ServerForWorkers)
TO_WORKER = calls_of(RemotePeer)
