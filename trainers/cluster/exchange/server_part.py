"""A parameter server as a process."""

from __future__ import annotations

from typing import Any

from syncswitch.trainers.cluster.exchange.memory import Block, aligned
from syncswitch.trainers.cluster.exchange.parameter_server import Caller, ParameterServer
from syncswitch.trainers.cluster.exchange.plans import ServerPlan
from syncswitch.trainers.cluster.exchange.remote import LostError, Methods, serve
from syncswitch.trainers.cluster.exchange.update import update_of
from syncswitch.trainers.cluster.exchange.wire import Wire

# A buffer for each worker, the newest one, the next one, and two that are being copied.
_BESIDES_WORKERS = 4


class ServerPart:
    """A parameter server and those that are connected to it."""

    def __init__(self, secret: bytes) -> None:
        self._server: ParameterServer | None = None
        self._buffers: Block | None = None
        self.methods: Methods = {
            "build": self._build,
            "load": lambda state: self._built.load(state),
            "mark": lambda: self._built.mark(),
            "marked": lambda: self._built.marked(),
            "snapshot": lambda: self._built.snapshot(),
            "apply_round": lambda *arguments: self._built.apply_round(*arguments),
            "fence": lambda worker: self._built.fence(worker),
        }

    def on_wire(self, wire: Wire) -> None:
        """Serves one worker."""
        server, size = self._built, self._built.buffers[0].size
        if wire.is_local:
            assert self._buffers is not None
            wire.send(len(self._buffers.rows))
            wire.send_descriptor(self._buffers.descriptor)
            inbox = Block(1, size, wire.receive_descriptor()).rows[0]
        else:
            wire.send(None)
            inbox = aligned(size)

        def pull(caller: Caller) -> tuple[int, Any]:
            updates, buffer = server.pull(caller)
            return updates, buffer if wire.is_local else server.buffers[buffer]

        def push_update(caller: Caller, number: int, sent: Any, *rest: float) -> int:
            return server.push_update(caller, number, inbox, *rest)

        def push_gradient(caller: Caller, number: int, sent: Any) -> int:
            return server.push_gradient(caller, number, inbox)

        methods: Methods = {
            "pull": pull,
            "push_update": push_update,
            "push_gradient": push_gradient,
        }
        serve(wire, methods, lambda: inbox)

    def close(self) -> None:
        """Nothing waits here."""

    def _build(self, plan: ServerPlan) -> None:
        self._buffers = Block(plan.workers + _BESIDES_WORKERS, plan.sizes.model)
        rows = iter(self._buffers.rows)
        self._server = ParameterServer(
            plan.sizes, plan.workers, update_of(plan.update), plan.decay, lambda: next(rows)
        )

    @property
    def _built(self) -> ParameterServer:
        if self._server is None:
            raise LostError("the parameter server is new")
        return self._server
