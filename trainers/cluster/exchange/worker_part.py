"""A worker as a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncswitch.trainers.cluster.exchange.memory import Block, aligned
from syncswitch.trainers.cluster.exchange.parameter_server import Caller
from syncswitch.trainers.cluster.exchange.plans import WorkerPlan
from syncswitch.trainers.cluster.exchange.remote import (
    LostError,
    Methods,
    Remote,
    RemoteServer,
    serve,
)
from syncswitch.trainers.cluster.exchange.tasks import Push, Task
from syncswitch.trainers.cluster.exchange.update import update_of
from syncswitch.trainers.cluster.exchange.wire import Address, Wire, dial
from syncswitch.trainers.model.layout import ModelState, Vector


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
        from syncswitch.trainers.cluster.exchange.gpu import step_of
        from syncswitch.trainers.cluster.exchange.worker import Worker

        self._sizes = plan.sizes
        self._computed = Block(1, plan.sizes.model)
        self._worker = Worker(
            plan.sizes,
            step_of(plan),
            (plan.inputs, plan.labels),
            self._computed.rows[0],
            plan.decay,
            lambda: update_of(plan.update),
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
