"""A parameter server as a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncswitch.trainers.cluster.exchange.memory import Block, aligned
from syncswitch.trainers.cluster.exchange.parameter_server import Caller, ParameterServer
from syncswitch.trainers.cluster.exchange.plans import ServerPlan
from syncswitch.trainers.cluster.exchange.remote import Methods, serve
from syncswitch.trainers.cluster.exchange.update import update_of
from syncswitch.trainers.cluster.exchange.wire import Wire

# A buffer for each worker, the newest one, the next one, and two that are being copied.
_BESIDES_WORKERS = 4
_FOR_CHIEFS = ("load", "mark", "marked", "snapshot", "apply_round", "apply_buffer", "fence")
_FOR_CHIEFS_OF_TABLES = ("load_rows", "read_rows", "end_read")


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
            inbox = Block(1, self._model, wire.receive_descriptor()).rows[0][self._shard]
        else:
            wire.send(None)
            inbox = aligned(size)

        def pull(caller: Caller, *ids: Any) -> tuple[Any, ...]:
            updates, buffer, model, rows = server.pull(caller, *ids)
            return updates, buffer if wire.is_local else model, *rows

        def push_update(caller: Caller, number: int, sent: Any, *rest: Any) -> int:
            return server.push_update(caller, number, inbox, *rest)

        def push_gradient(caller: Caller, number: int, sent: Any, *rest: Any) -> int:
            return server.push_gradient(caller, number, inbox, *rest)

        methods: Methods = {
            "pull": pull,
            "push_update": push_update,
            "push_gradient": push_gradient,
        }
        # Where memory is shared, what comes over the wire is rows of tables alone.
        serve(wire, methods, None if wire.is_local else inbox)

    def close(self) -> None:
        """Nothing waits here."""

    def _build(self, plan: ServerPlan) -> None:
        self._shard, self._model = plan.shard, plan.model
        self._buffers = Block(plan.workers + _BESIDES_WORKERS, plan.sizes.model)
        rows = iter(self._buffers.rows)
        self._server = ParameterServer(
            plan.sizes,
            plan.workers,
            update_of(plan.update),
            plan.decay,
            lambda: next(rows),
            plan.tables,
        )
        tables = self._server.tables
        self.methods |= {name: getattr(self._server, name) for name in _FOR_CHIEFS}
        self.methods |= {name: getattr(tables, name) for name in _FOR_CHIEFS_OF_TABLES}
