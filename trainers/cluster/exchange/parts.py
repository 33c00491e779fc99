"""The processes of a cluster: a parameter server, or a worker, in the service of a chief."""

from __future__ import annotations

import os
import select
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from syncswitch.trainers.cluster.exchange.handshake import Address, Identity, Part
from syncswitch.trainers.cluster.exchange.parameter_server import (
    Caller,
    FencedError,
    ParameterServer,
)
from syncswitch.trainers.cluster.exchange.plans import (
    CHIEF,
    CHIEF_TO_SERVER,
    CHIEF_TO_WORKER,
    SERVER,
    TO_WORKER,
    WORKER,
    WORKER_TO_SERVER,
    Hello,
    ServerPlan,
    WorkerPlan,
)
from syncswitch.trainers.cluster.exchange.remote import (
    Methods,
    Peers,
    RemoteServer,
    RemoteServers,
    serve,
)
from syncswitch.trainers.cluster.exchange.vectors import Block, aligned, update_of
from syncswitch.trainers.cluster.exchange.wire import Door, Wire, dial
from syncswitch.trainers.model.embeddings.shard import Ids
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.parent import die_with_parent

# A buffer for each worker, the newest one, the next one, and two that are being copied.
_BESIDES_WORKERS = 4


class ServerPart:
    """A parameter server and the workers that are connected to it."""

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

        def pushing(push: Callable[..., int]) -> Callable[..., int]:
            def pushed(caller: Caller, number: int, sent: Vector | None, *rest: Any) -> int:
                # What was sent has to lie in the inbox now.
                shape = None if sent is None else sent.shape
                if shape != (None if wire.is_local else inbox.shape):
                    raise ValueError("a gradient of another length")
                return push(_checked(caller, wire), number, inbox, *rest)

            return pushed

        methods: Methods = {
            "pull": pull,
            "push_update": pushing(server.push_update),
            "push_gradient": pushing(server.push_gradient),
        }
        # Where memory is shared, what comes over the wire is rows of embeddings alone.
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
            plan.embeddings,
        )
        for name in CHIEF_TO_SERVER.keys() - self.methods.keys():
            holder = self._server if hasattr(self._server, name) else self._server.embeddings
            self.methods[name] = getattr(holder, name)


def _checked(caller: Caller, wire: Wire) -> Caller:
    """Nobody speaks for another worker."""
    if wire.peer != (WORKER, caller.worker):
        raise FencedError(f"worker {caller.worker} is another one")
    return caller


class WorkerPart:
    """A worker, and those that fetch pieces of its replica.

    Args:
        own: Which part of the cluster it is.
        reference: See `Place`.
    """

    guests = (CHIEF, WORKER)
    calls = CHIEF_TO_WORKER

    def __init__(self, own: Identity, reference: str | None = None) -> None:
        self._own = own
        self._reference = reference
        self._servers: RemoteServers | None = None
        self._peers = Peers(own)
        self.methods: dict[str, Callable[..., Any]] = {"build": self._build}
        self._for_guests: dict[str, Callable[..., Any]] = {}

    def on_wire(self, wire: Wire) -> None:
        """Serves another worker, or the chief."""
        serve(wire, TO_WORKER, self._for_guests)

    def close(self) -> None:
        """Waits for nobody any more."""
        for one in (self._servers, *self._peers.values()):
            if one is not None:
                one.close()

    def _build(self, plan: WorkerPlan) -> None:
        from syncswitch.trainers.cluster.exchange.worker import Worker, step_of
        from syncswitch.trainers.model.batches.feed import feed_of

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
            lambda: update_of(plan.update),
            embeddings=None if plan.embeddings is None else plan.embeddings.restored(),
        )
        self.methods |= {
            "connect": self._connect,
            "take": worker.take,
            "reduce": lambda *group: worker.reduce(group[0], self._members(*group)),
            "gather": lambda *group: worker.gather(group[0], self._members(*group)),
            "commit": worker.commit,
        }
        self._for_guests["fetch"] = worker.fetch

    def _connect(self, caller: Caller, servers: Sequence[tuple[str, Address, slice]]) -> None:
        """Joins parameter servers, new or the same, with their names, addresses and shards."""
        if self._servers is not None:
            self._servers.close()
        joined = [
            RemoteServer(dial(address, SERVER, self._own), name, shard, self._computed)
            for name, address, shard in servers
        ]
        self._servers = RemoteServers(joined, self._size)
        self._worker.join(caller, self._servers)
        self.methods["step"] = self._worker.step

    def _members(self, position: int, addresses: Sequence[Address]) -> list[Any]:
        """The workers of a group; this one itself at its position."""
        return [
            self._worker if number == position else self._peers[address]
            for number, address in enumerate(addresses)
        ]


SECRET = "SYNCSWITCH_SECRET"
"""Variable of the environment with the secret of a cluster."""

PULSE_SECONDS = 0.5
"""Time after which a process says again that it lives."""


@dataclass(frozen=True)
class Place:
    """The part of a cluster that a process is, and how it finds the others.

    Attributes:
        part: Role and number.
        chief: Address of the chief.
        listen: Address at which it lets others in.
        secret: Secret of the cluster; see `Identity`.
        reference: The workload, as `load_workload` takes it; None where that is not known.
    """

    part: Part
    chief: Address
    listen: Address
    secret: bytes | None = field(repr=False)
    reference: str | None = None


def become_part(place: Place) -> NoReturn:
    """Replaces this process by a fresh program, which sees the GPU that its environment names."""
    arguments, secret = program(place)
    os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **secret})


def program(place: Place) -> tuple[list[str], dict[str, str]]:
    """Arguments of Python for a process that is a part, and its environment besides others."""
    assert place.secret is not None
    role, number = place.part
    rest = msgspec.json.encode((place.chief, place.listen, place.reference)).decode()
    return ["-m", __name__, role, str(number), rest], {SECRET: place.secret.hex()}


def serve_chief(place: Place) -> None:
    """Is this part of a cluster until its chief is gone.

    Raises:
        OSError: There is no chief, or no place to listen.
    """
    token = uuid.uuid4().hex
    own = Identity(place.part, place.secret)
    is_server = place.part[0] == SERVER
    served = ServerPart() if is_server else WorkerPart(own, place.reference)
    door = Door(place.listen, own, served.guests, served.on_wire)
    try:
        wire = dial(place.chief, CHIEF, own)
        wire.send(Hello(token, door.address))
        pulse = dial(place.chief, CHIEF, own)
        pulse.send(Hello(token, None))
        # A chief that closes the pulse wants this process to wait for nobody any more.
        threading.Thread(target=_beat, args=(pulse, served.close), daemon=True).start()
        serve(wire, served.calls, served.methods)
        pulse.close()
    finally:
        door.close()
        served.close()


def _beat(pulse: Wire, on_end: Callable[[], None]) -> None:
    # The chief never says a word on it: all that can be read is the end. A closed one is no file.
    with suppress(OSError, ValueError):
        while not select.select([pulse], [], [], PULSE_SECONDS)[0]:
            pulse.send(None)
    pulse.close()
    on_end()


def main() -> None:
    """The program; it ends with the process that has started it."""
    role, number, rest = sys.argv[1:]
    kind = tuple[Address, Address, str | None]
    chief, listen, reference = msgspec.json.decode(rest, type=kind)
    die_with_parent()
    secret = bytes.fromhex(os.environ.pop(SECRET))
    serve_chief(Place((role, int(number)), chief, listen, secret, reference))


if __name__ == "__main__":
    main()
