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
from syncswitch.trainers.cluster.exchange.memory import Block, aligned
from syncswitch.trainers.cluster.exchange.parameter_server import (
    Caller,
    FencedError,
    ParameterServer,
)
from syncswitch.trainers.cluster.exchange.plans import (
    CHIEF,
    CHIEF_TO_SERVER,
    SERVER,
    WORKER,
    WORKER_TO_SERVER,
    Hello,
    ServerPlan,
)
from syncswitch.trainers.cluster.exchange.remote import Methods, serve
from syncswitch.trainers.cluster.exchange.update import update_of
from syncswitch.trainers.cluster.exchange.wire import Door, Wire, dial
from syncswitch.trainers.cluster.exchange.worker_part import WorkerPart
from syncswitch.trainers.model.embeddings.shard import Ids
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.parent import die_with_parent

# A buffer for each worker, the newest one, the next one, and two that are being copied.
_BESIDES_WORKERS = 4
_FOR_CHIEFS = ("load", "mark", "marked", "snapshot", "apply_round", "apply_buffer", "fence")
_FOR_CHIEFS_OF_EMBEDDINGS = ("load_rows", "read_rows", "end_read")


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
        embeddings = self._server.embeddings
        self.methods |= {name: getattr(self._server, name) for name in _FOR_CHIEFS}
        self.methods |= {name: getattr(embeddings, name) for name in _FOR_CHIEFS_OF_EMBEDDINGS}


def _checked(caller: Caller, wire: Wire) -> Caller:
    """Nobody speaks for another worker."""
    if wire.peer != (WORKER, caller.worker):
        raise FencedError(f"worker {caller.worker} is another one")
    return caller


SECRET = "SYNCSWITCH_SECRET"
"""Variable of the environment with the secret of a cluster."""

PULSE_SECONDS = 0.5
"""So often a process says that it lives."""


@dataclass(frozen=True)
class Place:
    """Which part of a cluster a process is, and how it finds the others.

    Attributes:
        part: Role and number.
        chief: Address.
        listen: Where it lets others in.
        secret: Of the cluster; see `Identity`.
        reference: Of the workload, as `load_workload` takes it; None where that is not known.
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
