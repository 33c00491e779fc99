"""Calls over a wire, one after the other: parameter servers and workers in other processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from syncswitch.storage.errors import UserError, WorkloadError, one_line
from syncswitch.trainers.cluster.exchange.handshake import Address, Identity
from syncswitch.trainers.cluster.exchange.parameter_server import (
    Caller,
    FencedError,
    Pulled,
    RowGradients,
)
from syncswitch.trainers.cluster.exchange.plans import (
    TO_WORKER,
    WORKER,
    WORKER_TO_SERVER,
    Calls,
    StepError,
)
from syncswitch.trainers.cluster.exchange.vectors import Block, aligned
from syncswitch.trainers.cluster.exchange.wire import Message, Wire, dial
from syncswitch.trainers.model.embeddings.shard import Ids, gradients_for, ids_for, rows_of
from syncswitch.trainers.model.layout import Vector


class LostError(Exception):
    """The other process is gone, or has been given up."""


class RemoteError(Exception):
    """A call has raised an error in the other process, which goes on."""


Methods = Mapping[str, Callable[..., Any]]


class Remote:
    """The far end of a wire: what is served there can be called here, by any thread.

    Args:
        wire: The wire to it.
        name: Its name, for people.
        calls: The calls that it answers.
        lost: The error to raise once it is gone.

    Attributes:
        calling: Held from the beginning of a call to its end.
    """

    def __init__(
        self, wire: Wire, name: str, calls: Calls, lost: type[Exception] = LostError
    ) -> None:
        self.wire = wire
        self.name = name
        self._calls = calls
        self._lost = lost
        self.calling = threading.Lock()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self.call, method)

    def call(self, method: str, *arguments: Any, into: Vector | None = None) -> Any:
        """Calls a method and waits for what it returns.

        Args:
            method: Name of the method.
            arguments: Its arguments.
            into: See `Wire.receive`.

        Raises:
            LostError: The other end is gone; whether it has done it is not known.
            FencedError: The caller was replaced by another process.
            StepError: The step cannot be computed.
            RemoteError: It has raised something else.
        """
        with self.calling:
            self.ask(method, arguments)
            return self.answer(method, into)

    def ask(self, method: str, arguments: Sequence[Any]) -> None:
        """Begins a call, while `calling` is held; `answer` ends it."""
        try:
            self.wire.send((method, tuple(arguments)))
        except OSError as error:
            raise self._gone() from error

    def answer(self, method: str, into: Vector | None = None) -> Any:
        """Waits for the end of a call; see `call`."""
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
        """Ends the wire, also for a thread that waits for an answer."""
        self.wire.close()

    def _gone(self) -> Exception:
        self.wire.close()
        return self._lost(f"{self.name} is gone")


@dataclass(frozen=True)
class Call:
    """One of several calls at the same time.

    Attributes:
        remote: The far end that is called.
        method: Name of the method.
        arguments: Its arguments.
        into: See `Wire.receive`.
    """

    remote: Remote
    method: str
    arguments: Sequence[Any]
    into: Vector | None = None


def call_all(calls: Sequence[Call]) -> list[Any]:
    """Calls them all before it waits for the first answer; what each has returned.

    It has waited for all of them when it raises, so that the others can be called again.

    Raises:
        Exception: See `Remote.call`; that somebody is gone rather than anything else.
    """
    if len(calls) == 1:
        (one,) = calls
        return [one.remote.call(one.method, *one.arguments, into=one.into)]
    found: list[Any] = []
    asked: list[Call] = []
    errors: list[Exception] = []
    with ExitStack() as held:
        for one in calls:
            held.enter_context(one.remote.calling)
        for one in calls:
            try:
                one.remote.ask(one.method, one.arguments)
                asked.append(one)
            except Exception as error:
                errors.append(error)
        for one in asked:
            try:
                found.append(one.remote.answer(one.method, one.into))
            except Exception as error:
                errors.append(error)
    if errors:
        answered = (FencedError, StepError, UserError, RemoteError)
        raise min(errors, key=lambda error: isinstance(error, answered))
    return found


_ERRORS: Mapping[str, type[Exception]] = {
    error.__name__: error for error in (FencedError, LostError, StepError, UserError, WorkloadError)
}


_REFUSED = RemoteError.__name__
_ANSWER = tuple[str | None, msgspec.Raw]
_ASKED = tuple[str, msgspec.Raw]


def serve(wire: Wire, calls: Calls, methods: Methods, into: Vector | None = None) -> None:
    """Answers calls until the other end is gone.

    Args:
        wire: The wire to whoever calls.
        calls: The calls that it may make.
        methods: The methods behind them, as far as they can be called yet.
        into: Takes the array of a call, if it is as long.
    """
    with suppress(OSError, EOFError):
        while True:
            wire.send(_answer(wire.receive(into), calls, methods))
    wire.close()


def _answer(message: Message, calls: Calls, methods: Methods) -> tuple[str | None, Any]:
    """The answer to a call: the name of an error and its text, or None and the result."""
    method, _ = message.read(_ASKED)
    if method not in calls:
        return _REFUSED, f"nobody may ask for {method!r} here"
    if method not in methods:
        return _REFUSED, f"it is too early for {method!r}"
    try:
        _, arguments = message.read(tuple[str, calls[method][0]])  # type: ignore[misc]
        return None, methods[method](*arguments)
    except Exception as error:
        failure = type(error).__name__
        return failure, str(error) if failure in _ERRORS else one_line(error)


class RemoteServer:
    """One of them: the wire to it, and the memory that is shared with it.

    Args:
        wire: The wire to a `ServerPart`.
        name: Its name, for people.
        shard: Its piece of the vector that workers pull.
        computed: Memory for what the worker computes.

    Attributes:
        remote: To call it.
        shard: See above.
        buffers: Its buffers, where memory is shared.
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
    """All of them, which together are one `ParameterServer`; each call goes to all at once.

    Each takes in a push by itself, so those of several workers may come in another order to each.

    Args:
        servers: In the order of their shards.
        size: Length of what is pulled.
    """

    def __init__(self, servers: Sequence[RemoteServer], size: int) -> None:
        self._servers = servers
        self._pulled_updates = [0] * len(servers)
        # One alone may share its memory; what comes from several has to become one vector.
        needs_copy = len(servers) > 1 or servers[0].buffers is None
        self._model = aligned(size) if needs_copy else aligned(0)

    def pull(self, caller: Caller, ids: Sequence[Ids] = ()) -> Pulled:
        """See `ParameterServer`; updates are those of the first."""
        asked = ids_for(ids, len(self._servers))
        places = [self._model[one.shard] for one in self._servers]
        found = call_all(
            [
                Call(one.remote, "pull", (caller, own), place if one.buffers is None else None)
                for one, own, place in zip(self._servers, asked, places, strict=True)
            ]
        )
        self._pulled_updates = [updates for updates, *_ in found]
        model = self._model
        for server, place, (_, buffer, sent, _) in zip(self._servers, places, found, strict=True):
            if server.buffers is None:
                if sent is None or sent.shape != place.shape:
                    raise LostError(f"{server.remote.name} gives parameters of another length")
            elif len(self._servers) == 1:
                model = server.buffers[buffer]
            else:
                place[:] = server.buffers[buffer]
        rows = rows_of(ids, [own for *_, own in found])
        return Pulled(self._pulled_updates[0], 0, model, rows)

    def push_update(
        self,
        caller: Caller,
        number: int,
        computed: Vector,
        rate: float,
        momentum: float,
        rows: RowGradients = (),
        taken: Collection[int] = (),
    ) -> int:
        """See `ParameterServer`; leaves out those servers that have taken the step in before."""
        return self._push("push_update", caller, number, computed, (rate, momentum), rows, taken)

    def push_gradient(
        self,
        caller: Caller,
        number: int,
        computed: Vector,
        worker_step: int | None = None,
        rows: RowGradients = (),
    ) -> int:
        """See `ParameterServer`."""
        return self._push("push_gradient", caller, number, computed, (worker_step,), rows)

    def close(self) -> None:
        """Ends the wires."""
        for one in self._servers:
            one.remote.close()

    def _push(
        self,
        method: str,
        caller: Caller,
        number: int,
        computed: Vector,
        rest: tuple[float | None, ...],
        rows: RowGradients,
        taken: Collection[int] = (),
    ) -> int:
        calls, positions = [], []
        rows_for = gradients_for(rows, len(self._servers))
        for position, one in enumerate(self._servers):
            if position not in taken:
                # Nothing where memory is shared.
                sent = computed[one.shard] if one.buffers is None else None
                arguments = (caller, number, sent, *rest, rows_for[position])
                calls.append(Call(one.remote, method, arguments))
                positions.append(position)
        updates: int = call_all(calls)[0]
        # As if the first had been asked, for who counts the updates since the pull.
        return updates - self._pulled_updates[positions[0]] + self._pulled_updates[0]


class RemotePeer:
    """A worker in another process, as far as others need it; connected to when it is first asked.

    Args:
        address: Where it lets others in.
        own: The part that asks.
    """

    def __init__(self, address: Address, own: Identity) -> None:
        self._address = address
        self._own = own
        self._remote: Remote | None = None

    def fetch(self, what: str, start: int, stop: int) -> Vector:
        """See `Worker`."""
        found: Vector
        if self._remote is not None:
            # Another process may be there by now.
            with suppress(LostError):
                found = self._remote.fetch(what, start, stop)
                return found
        name = f"the worker at {self._address}"
        try:
            self._remote = Remote(dial(self._address, WORKER, self._own), name, TO_WORKER)
        except OSError as error:
            raise LostError(f"{name} is gone") from error
        found = self._remote.fetch(what, start, stop)
        return found

    def close(self) -> None:
        """Ends the wire."""
        if self._remote is not None:
            self._remote.close()


class Peers(dict[Address, RemotePeer]):
    """Workers in other processes by their addresses.

    Args:
        own: The part that asks them.
    """

    def __init__(self, own: Identity) -> None:
        super().__init__()
        self._own = own

    def __missing__(self, address: Address) -> RemotePeer:
        return self.setdefault(address, RemotePeer(address, self._own))
