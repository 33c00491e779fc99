"""A parameter server as a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from syncswitch.trainers.cluster.exchange.memory import Block, aligned
from syncswitch.trainers.cluster.exchange.parameter_server import (
    Caller,
    FencedError,
    ParameterServer,
)
from syncswitch.trainers.cluster.exchange.plans import (
    CHIEF_TO_SERVER,
    WORKER,
    WORKER_TO_SERVER,
    ServerPlan,
)
from syncswitch.trainers.cluster.exchange.remote import Methods, serve
from syncswitch.trainers.cluster.exchange.update import update_of
from syncswitch.trainers.cluster.exchange.wire import Wire
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.tables.shard import Ids

# A buffer for each worker, the newest one, the next one, and two that are being copied.
_BESIDES_WORKERS = 4
_FOR_CHIEFS = ("load", "mark", "marked", "snapshot", "apply_round", "apply_buffer", "fence")
_FOR_CHIEFS_OF_TABLES = ("load_rows", "read_rows", "end_read")


class ServerPart:
    """A parameter server and those that are connected to it."""

    guests = (WORKER,)
    calls = CHIEF_TO_SERVER

    def __init__(self) -> None:
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

        def pull(caller: Caller, ids: Sequence[Ids]) -> tuple[Any, ...]:
            updates, buffer, model, rows = server.pull(_checked(caller, wire), ids)
            return updates, buffer, None if wire.is_local else model, rows

        def push_update(caller: Caller, number: int, sent: Vector | None, *rest: Any) -> int:
            arrived(sent)
            return server.push_update(_checked(caller, wire), number, inbox, *rest)

        def push_gradient(caller: Caller, number: int, sent: Vector | None, *rest: Any) -> int:
            arrived(sent)
            return server.push_gradient(_checked(caller, wire), number, inbox, *rest)

        def arrived(sent: Vector | None) -> None:
            """Raises ValueError where it is not what lies in the inbox now."""
            if (sent is None) != wire.is_local or (sent is not None and sent.shape != inbox.shape):
                raise ValueError("a gradient of another length")

        methods: Methods = {
            "pull": pull,
            "push_update": push_update,
            "push_gradient": push_gradient,
        }
        # Where memory is shared, what comes over the wire is rows of tables alone.
        serve(wire, WORKER_TO_SERVER, methods, None if wire.is_local else inbox)

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


def _checked(caller: Caller, wire: Wire) -> Caller:
    """Nobody speaks for another worker."""
    if wire.peer != (WORKER, caller.worker):
        raise FencedError(f"worker {caller.worker} is another one")
    return caller
