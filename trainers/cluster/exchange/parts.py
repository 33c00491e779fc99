"""The processes of a cluster: a parameter server, or a worker, in the service of a chief."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from syncswitch.trainers.cluster.exchange.memory import Block, aligned
from syncswitch.trainers.cluster.exchange.parameter_server import Caller, ParameterServer
from syncswitch.trainers.cluster.exchange.plans import SERVER, Hello, Part, ServerPlan, WorkerPlan
from syncswitch.trainers.cluster.exchange.remote import (
    LostError,
    Methods,
    Remote,
    RemoteServer,
    serve,
)
from syncswitch.trainers.cluster.exchange.tasks import Push, Task
from syncswitch.trainers.cluster.exchange.update import MomentumUpdate, TracedUpdate, Update
from syncswitch.trainers.cluster.exchange.wire import Address, Door, Wire, dial
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.parent import die_with_parent

SECRET = "SYNCSWITCH_SECRET"
"""Variable of the environment with the secret of a cluster."""

PULSE_SECONDS = 0.5
"""So often a process says that it lives."""

# A buffer for each worker, the newest one, the next one, and two that are being copied.
_BESIDES_WORKERS = 4


@dataclass(frozen=True)
class Place:
    """Which part of a cluster a process is, and how it finds the others.

    Attributes:
        part: Role and number.
        chief: Address.
        listen: Where it lets others in.
        secret: Of the cluster.
    """

    part: Part
    chief: Address
    listen: Address
    secret: bytes = field(repr=False)


def become_part(place: Place) -> NoReturn:
    """Replaces this process by a fresh program, which sees the GPU that its environment names."""
    environment = {**os.environ, SECRET: place.secret.hex()}
    os.execve(sys.executable, [sys.executable, *program(place)], environment)


def program(place: Place) -> list[str]:
    """Arguments of Python for a process that is a part; it finds the secret in its environment."""
    role, number = place.part
    return ["-m", __name__, role, str(number), json.dumps([place.chief, place.listen])]


def serve_chief(place: Place) -> None:
    """Is this part of a cluster until its chief is gone.

    Raises:
        OSError: There is no chief, or no place to listen.
    """
    token = uuid.uuid4().hex
    kind = ServerPart if place.part[0] == SERVER else WorkerPart
    served = kind(place.secret)
    door = Door(place.listen, place.secret, served.on_wire)
    try:
        wire = dial(place.chief, place.secret)
        wire.send(Hello(place.part, token, _reached_at(place.listen, door.address)))
        pulse = dial(place.chief, place.secret)
        pulse.send(Hello(place.part, token, None))
        # A chief that closes the pulse wants this process to wait for nobody any more.
        threading.Thread(target=_beat, args=(pulse, served.close), daemon=True).start()
        serve(wire, served.methods)
        pulse.close()
    finally:
        door.close()
        served.close()


def _reached_at(listen: Address, found: Address) -> Address:
    """Where others reach it: as they were told, at the port that it has got."""
    if isinstance(listen, str) or isinstance(found, str):
        return found
    return listen[0], found[1]


def _beat(pulse: Wire, on_end: Callable[[], None]) -> None:
    threading.Thread(target=_await_end, args=(pulse,), daemon=True).start()
    with suppress(OSError):
        while True:
            pulse.send(None)
            time.sleep(PULSE_SECONDS)
    on_end()


def _await_end(pulse: Wire) -> None:
    with suppress(OSError, EOFError):
        pulse.receive()
    pulse.close()


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
            plan.sizes, plan.workers, _update(plan.update), plan.decay, lambda: next(rows)
        )

    @property
    def _built(self) -> ParameterServer:
        if self._server is None:
            raise LostError("the parameter server is new")
        return self._server


class WorkerPart:
    """A worker, and those that fetch pieces of its replica."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._worker: Any = None  # imports TensorFlow
        self._server: RemoteServer | None = None
        self._computed = Block(1, 0)
        self._peers: dict[Address, _RemotePeer] = {}
        self.methods: Methods = {
            "build": self._build,
            "connect": self._connect,
            "step": self._step,
            "take": self._take,
            "reduce": lambda position, addresses: self._worker.reduce(
                position, self._found(addresses, position)
            ),
            "gather": lambda position, addresses: self._worker.gather(
                position, self._found(addresses, position)
            ),
            "commit": lambda: self._worker.commit(),
        }

    def on_wire(self, wire: Wire) -> None:
        """Serves another worker, or the chief."""
        methods: Methods = {"fetch": self._worker.fetch}
        serve(wire, methods)

    def close(self) -> None:
        """Waits for nobody any more."""
        for one in (self._server, *self._peers.values()):
            if one is not None:
                one.close()

    def _build(self, plan: WorkerPlan) -> None:
        from syncswitch.trainers.cluster.exchange.worker import Worker

        self._sizes = plan.sizes
        self._computed = Block(1, plan.sizes.model)
        self._worker = Worker(
            plan.sizes,
            plan.step.restored(),
            (plan.inputs, plan.labels),
            self._computed.rows[0],
            plan.decay,
            lambda: _update(plan.update),
        )

    def _connect(self, caller: Caller, address: Address) -> None:
        """Joins a parameter server, new or the same."""
        if self._server is not None:
            self._server.close()
        wire = dial(address, self._secret)
        size = self._sizes.model
        rows = wire.receive()
        remote = Remote(wire, "the parameter server")
        if rows is None:
            self._server = RemoteServer(remote, aligned(size))
        else:
            buffers = Block(rows, size, wire.receive_descriptor())
            wire.send_descriptor(self._computed.descriptor)
            self._server = RemoteServer(remote, None, buffers.rows)
        self._worker.join(caller, self._server)

    def _step(self, task: Task) -> Push:
        found: Push = self._worker.step(task)
        return found

    def _take(self, state: ModelState) -> None:
        self._worker.take(state)

    def _found(self, addresses: Sequence[Address], position: int) -> list[Any]:
        """The members of a group; this one itself at its position."""
        found: list[Any] = []
        for number, address in enumerate(addresses):
            if number == position:
                found.append(self._worker)
                continue
            if address not in self._peers:
                self._peers[address] = _RemotePeer(address, self._secret)
            found.append(self._peers[address])
        return found


class _RemotePeer:
    """Another worker; connected to when it is first asked, and again after a loss."""

    def __init__(self, address: Address, secret: bytes) -> None:
        self._address = address
        self._secret = secret
        self._remote: Remote | None = None

    def fetch(self, what: str, start: int, stop: int) -> Vector:
        """See `PeerPort`."""
        if self._remote is None:
            try:
                self._remote = Remote(dial(self._address, self._secret), "another worker")
            except OSError as error:
                raise LostError(f"another worker at {self._address} is gone") from error
        try:
            found: Vector = self._remote.call("fetch", what, start, stop)
        except LostError:
            self.close()
            raise
        return found

    def close(self) -> None:
        """Ends the wire."""
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()


def _update(shipped: Any) -> Update:
    if shipped is None:
        return MomentumUpdate()
    from syncswitch.trainers.model.steps import flat_update

    return TracedUpdate(flat_update(shipped.restored()))


def main() -> None:
    """The program; it ends with the process that has started it."""
    role, number, addresses = sys.argv[1:]
    chief, listen = (
        one if isinstance(one, str) else (str(one[0]), int(one[1])) for one in json.loads(addresses)
    )
    die_with_parent()
    serve_chief(Place((role, int(number)), chief, listen, bytes.fromhex(os.environ.pop(SECRET))))


if __name__ == "__main__":
    main()
