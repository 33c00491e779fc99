"""A parameter server as a process, and as a worker in another one sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncswitch.trainers.cluster.exchange.memory import Block, aligned
from syncswitch.trainers.cluster.exchange.parameter_server import Caller, ParameterServer, Pulled
from syncswitch.trainers.cluster.exchange.plans import ServerPlan
from syncswitch.trainers.cluster.exchange.remote import Methods, Remote, serve
from syncswitch.trainers.cluster.exchange.update import update_of
from syncswitch.trainers.cluster.exchange.wire import Wire
from syncswitch.trainers.model.layout import Vector

# A buffer for each worker, the newest one, the next one, and two that are being copied.
_BESIDES_WORKERS = 4
_FOR_CHIEFS = ("load", "mark", "marked", "snapshot", "apply_round", "apply_buffer", "fence")


class ServerPart:
    """A parameter server and those that are connected to it."""

    def __init__(self, secret: bytes) -> None:
        self._server: ParameterServer | None = None
        self.methods: dict[str, Callable[..., Any]] = {"build": self._build}

    def on_wire(self, wire: Wire) -> None:
        """Serves one worker."""
        server = self._server
        if server is None:
            raise ConnectionRefusedError("the parameter server is new")
        # As long as what it pulls.
        size = server.buffers[0].size
        if wire.is_local:
            wire.send(len(self._buffers.rows))
            wire.send_descriptor(self._buffers.descriptor)
            inbox = Block(1, size, wire.receive_descriptor()).rows[0]
        else:
            wire.send(None)
            inbox = aligned(size)

        def pull(caller: Caller) -> tuple[int, Any]:
            updates, buffer, model = server.pull(caller)
            return updates, buffer if wire.is_local else model

        def push_update(caller: Caller, number: int, sent: Any, *rest: float) -> int:
            return server.push_update(caller, number, inbox, *rest)

        def push_gradient(caller: Caller, number: int, sent: Any, *rest: int | None) -> int:
            return server.push_gradient(caller, number, inbox, *rest)

        methods: Methods = {
            "pull": pull,
            "push_update": push_update,
            "push_gradient": push_gradient,
        }
        serve(wire, methods, inbox)

    def close(self) -> None:
        """Nothing waits here."""

    def _build(self, plan: ServerPlan) -> None:
        self._buffers = Block(plan.workers + _BESIDES_WORKERS, plan.sizes.model)
        rows = iter(self._buffers.rows)
        self._server = ParameterServer(
            plan.sizes, plan.workers, update_of(plan.update), plan.decay, lambda: next(rows)
        )
        self.methods |= {name: getattr(self._server, name) for name in _FOR_CHIEFS}


class RemoteServer:
    """A parameter server over a wire, as one worker sees it; see `ParameterServer`.

    Args:
        wire: To a `ServerPart`.
        size: Of what is pulled.
        computed: What the worker has computed.
    """

    def __init__(self, wire: Wire, size: int, computed: Block) -> None:
        rows = wire.receive()
        self._remote = Remote(wire, "the parameter server")
        self._buffers: list[Vector] | None = None
        self._pulled: Vector | None = None
        if rows is None:
            self._pulled = aligned(size)
        else:
            self._buffers = Block(rows, size, wire.receive_descriptor()).rows
            wire.send_descriptor(computed.descriptor)

    def pull(self, caller: Caller) -> Pulled:
        """See `ParameterServer`."""
        updates, found = self._remote.call("pull", caller, into=self._pulled)
        return Pulled(updates, 0, found if self._buffers is None else self._buffers[found])

    def push_update(
        self, caller: Caller, number: int, computed: Vector, rate: float, momentum: float
    ) -> int:
        """See `ParameterServer`."""
        sent = self._sent(computed)
        updates: int = self._remote.push_update(caller, number, sent, rate, momentum)
        return updates

    def push_gradient(
        self, caller: Caller, number: int, computed: Vector, worker_step: int | None = None
    ) -> int:
        """See `ParameterServer`."""
        sent = self._sent(computed)
        updates: int = self._remote.push_gradient(caller, number, sent, worker_step)
        return updates

    def close(self) -> None:
        """Ends the wire."""
        self._remote.close()

    def _sent(self, computed: Vector) -> Vector | None:
        """Nothing where memory is shared."""
        return computed if self._buffers is None else None
