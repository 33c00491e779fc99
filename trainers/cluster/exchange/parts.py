"""The processes of a cluster other than the chief: parameter servers and workers."""

from __future__ import annotations

import os
import select
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from syncswitch.trainers.cluster.exchange.parameter_server import FencedError, ParameterServer
from syncswitch.trainers.cluster.exchange.plans import (
    CHIEF,
    SERVER,
    WORKER,
    Caller,
    Hello,
    RowGradients,
    ServerPlan,
    Task,
    WorkerPlan,
)
from syncswitch.trainers.cluster.exchange.remote import (
    CHIEF_TO_SERVER,
    CHIEF_TO_WORKER,
    TO_WORKER,
    WORKER_TO_SERVER,
    Methods,
    RemotePeer,
    RemoteServer,
    RemoteServers,
    RemoteShard,
    ServerForChief,
    calls_of,
    serve,
)
from syncswitch.trainers.cluster.exchange.security import Address, Identity, Part
from syncswitch.trainers.cluster.exchange.vectors import (
    Block,
    ahead_of,
    aligned,
    keep_freed_memory,
    projection_of,
    update_of,
)
from syncswitch.trainers.cluster.exchange.wire import Listener, Wire, dial
from syncswitch.trainers.model.embeddings import Ids
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.parent import die_with_parent
from syncswitch.trainers.protocols import AfterAverage

# Beside a buffer for each worker: the newest, the next, and two that are being copied.
_BESIDES_WORKERS = 4


class ServerPart:
    """A parameter server as a process: answers its chief and its workers.

    `admits` are the roles that may connect to it; `methods` answer the `calls` of its chief, as far
    as they can be called yet.
    """

    admits = (WORKER,)
    calls = CHIEF_TO_SERVER

    def __init__(self) -> None:
        self._server: ParameterServer | None = None
        self.methods: dict[str, Callable[..., Any]] = {"build": self._build}

    def on_wire(self, wire: Wire) -> None:
        server = self._server
        if server is None:
            raise ConnectionRefusedError("the parameter server is new")
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

        def push(caller: Caller, task: Task, sent: Vector | None, rows: RowGradients) -> int:
            # A gradient that was sent has been received into the inbox.
            shape = None if sent is None else sent.shape
            if shape != (None if wire.is_local else inbox.shape):
                raise ValueError("a gradient of another length")
            return server.push(_checked(caller, wire), task, inbox, rows)

        methods: Methods = {"pull": pull, "push": push}
        # Where memory is shared, the only arrays on the wire are rows of embeddings.
        serve(wire, WORKER_TO_SERVER, methods, None if wire.is_local else inbox)

    def close(self) -> None:
        """Does nothing: a parameter server waits for nobody."""

    def _build(self, plan: ServerPlan) -> None:
        self._shard, self._model = plan.shard, plan.model
        self._buffers = Block(plan.workers + _BESIDES_WORKERS, plan.sizes.model)
        rows = iter(self._buffers.rows)
        self._server = ParameterServer(
            plan.sizes,
            plan.workers,
            update_of(plan),
            plan.decay,
            lambda: next(rows),
            plan.embeddings,
            projection_of(plan),
            has_averages=plan.has_averages,
        )
        self.methods |= {name: getattr(self._server, name) for name in calls_of(ServerForChief)}
        shard = self._server.embeddings
        self.methods |= {name: getattr(shard, name) for name in calls_of(RemoteShard)}


def _checked(caller: Caller, wire: Wire) -> Caller:
    if wire.peer != (WORKER, caller.worker):
        raise FencedError(f"worker {caller.worker} is another one")
    return caller


class WorkerPart:
    """A worker as a process: answers its chief, and others that fetch pieces of its replica.

    Its attributes are those of `ServerPart`.
    """

    admits = (CHIEF, WORKER)
    calls = CHIEF_TO_WORKER

    def __init__(self, own: Identity, reference: str | None = None) -> None:
        self._own = own
        self._reference = reference
        self._servers: RemoteServers | None = None
        self._peers: dict[Address, RemotePeer] = {}
        self.methods: dict[str, Callable[..., Any]] = {"build": self._build}
        self._for_others: dict[str, Callable[..., Any]] = {}

    def on_wire(self, wire: Wire) -> None:
        serve(wire, TO_WORKER, self._for_others)

    def close(self) -> None:
        """Closes its wires, so that it waits for nobody any more."""
        for one in (self._servers, *self._peers.values()):
            if one is not None:
                one.close()

    def _build(self, plan: WorkerPlan) -> None:
        from syncswitch.trainers.cluster.exchange.worker import Worker, step_of
        from syncswitch.trainers.model.feed import feed_of
        from syncswitch.trainers.model.function import EmbeddingSteps

        source = plan.source.restored(self._reference)
        source.check()
        feed = feed_of(source, plan.batch_size)
        self._size = plan.sizes.model
        self._computed = Block(1, self._size)
        self._worker = worker = Worker(
            plan.sizes,
            step_of(plan, feed),
            feed,
            self._computed.rows[0],
            plan.decay,
            lambda: update_of(plan),
            embeddings=(
                None if plan.ids is None else EmbeddingSteps(plan.embeddings, plan.ids.restored())
            ),
            project=projection_of(plan),
            new_ahead=lambda: ahead_of(plan),
        )
        self.methods |= {
            "connect": self._connect,
            "take": worker.take,
            "take_slots": worker.take_slots,
            "reduce": lambda *group: worker.reduce(*self._grouped(*group)),
            "gather": lambda *group: worker.gather(*self._grouped(*group)),
            "commit": worker.commit,
        }
        self._for_others["fetch"] = worker.fetch

    def _connect(self, caller: Caller, servers: Sequence[tuple[str, Address, slice]]) -> None:
        if self._servers is not None:
            self._servers.close()
        joined = [
            RemoteServer(dial(address, SERVER, self._own), name, shard, self._computed)
            for name, address, shard in servers
        ]
        self._servers = RemoteServers(joined, self._size)
        self._worker.join(caller, self._servers)
        self.methods["step"] = self._worker.step

    def _grouped(
        self, position: int, addresses: Sequence[Address], after: AfterAverage
    ) -> tuple[int, list[Any], AfterAverage]:
        """The same with the workers of a group, this one at its position."""
        members = [
            self._worker
            if number == position
            else self._peers.setdefault(address, RemotePeer(address, self._own))
            for number, address in enumerate(addresses)
        ]
        return position, members, after


SECRET = "SYNCSWITCH_SECRET"
"""The environment variable with the secret of a cluster."""

PULSE_SECONDS = 0.5
"""The time between two heartbeats of a process."""


@dataclass(frozen=True)
class PartConfig:
    """What a process has to know of its cluster.

    `reference` is the workload, as `load_workload` takes it; None where that is not known.
    """

    part: Part
    chief: Address
    listen: Address
    secret: bytes | None = field(repr=False)
    reference: str | None = None


def program(config: PartConfig) -> tuple[list[str], dict[str, str]]:
    """Returns Python's arguments for a process that is a part, and its extra environment."""
    assert config.secret is not None
    role, number = config.part
    rest = msgspec.json.encode((config.chief, config.listen, config.reference)).decode()
    return ["-m", __name__, role, str(number), rest], {SECRET: config.secret.hex()}


def serve_chief(config: PartConfig) -> None:
    """Runs a part of a cluster in this process until its chief is gone.

    Raises OSError if the chief cannot be reached, or it cannot listen at its address.
    """
    token = uuid.uuid4().hex
    own = Identity(config.part, config.secret)
    is_server = config.part[0] == SERVER
    if not is_server:
        keep_freed_memory()
    served = ServerPart() if is_server else WorkerPart(own, config.reference)
    listener = Listener(config.listen, own, served.admits, served.on_wire)
    try:
        wire = dial(config.chief, CHIEF, own)
        wire.send(Hello(token, listener.address))
        pulse = dial(config.chief, CHIEF, own)
        pulse.send(Hello(token, None))
        # A chief that closes the pulse has given up this process, which must not wait any more.
        threading.Thread(target=_beat, args=(pulse, served.close), daemon=True).start()
        serve(wire, served.calls, served.methods)
        pulse.close()
    finally:
        listener.close()
        served.close()


def _beat(pulse: Wire, on_end: Callable[[], None]) -> None:
    # The chief sends nothing on it, so it is readable only at the end; a closed one raises.
    with suppress(OSError, ValueError):
        while not select.select([pulse], [], [], PULSE_SECONDS)[0]:
            pulse.send(None)
    pulse.close()
    on_end()


def main() -> None:
    """Runs the program; it ends with the process that started it."""
    role, number, rest = sys.argv[1:]
    kind = tuple[Address, Address, str | None]
    chief, listen, reference = msgspec.json.decode(rest, type=kind)
    die_with_parent()
    secret = bytes.fromhex(os.environ.pop(SECRET))
    serve_chief(PartConfig((role, int(number)), chief, listen, secret, reference))


if __name__ == "__main__":
    main()
