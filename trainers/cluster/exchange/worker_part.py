"""A worker as a process, and as others see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from syncswitch.trainers.cluster.exchange.handshake import Address, Identity
from syncswitch.trainers.cluster.exchange.memory import Block
from syncswitch.trainers.cluster.exchange.parameter_server import Caller
from syncswitch.trainers.cluster.exchange.plans import (
    CHIEF,
    CHIEF_TO_WORKER,
    SERVER,
    TO_WORKER,
    WORKER,
    WorkerPlan,
)
from syncswitch.trainers.cluster.exchange.remote import LostError, Remote, serve
from syncswitch.trainers.cluster.exchange.remote_servers import RemoteServer, RemoteServers
from syncswitch.trainers.cluster.exchange.update import update_of
from syncswitch.trainers.cluster.exchange.wire import Wire, dial
from syncswitch.trainers.model.layout import Vector


class WorkerPart:
    """A worker, and those that fetch pieces of its replica.

    Args:
        own: Which it is.
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
        from syncswitch.trainers.cluster.exchange.gpu import step_of
        from syncswitch.trainers.cluster.exchange.worker import Worker
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
        """Of a group; this one itself at its position."""
        return [
            self._worker if number == position else self._peers[address]
            for number, address in enumerate(addresses)
        ]


class RemotePeer:
    """A worker in another process, as far as others need it; connected to when it is first asked.

    Args:
        address: Where it lets others in.
        own: Who asks.
    """

    def __init__(self, address: Address, own: Identity) -> None:
        self._address = address
        self._own = own
        self._remote: Remote | None = None

    def fetch(self, what: str, start: int, stop: int) -> Vector:
        """See `Worker`."""
        if self._remote is not None:
            # Another process may be there by now.
            with suppress(LostError):
                return self._fetched(self._remote, what, start, stop)
        name = f"the worker at {self._address}"
        try:
            self._remote = Remote(dial(self._address, WORKER, self._own), name, TO_WORKER)
        except OSError as error:
            raise LostError(f"{name} is gone") from error
        return self._fetched(self._remote, what, start, stop)

    def close(self) -> None:
        """Ends the wire."""
        if self._remote is not None:
            self._remote.close()

    def _fetched(self, remote: Remote, what: str, start: int, stop: int) -> Vector:
        found: Vector = remote.fetch(what, start, stop)
        return found


class Peers(dict[Address, RemotePeer]):
    """Workers in other processes by their addresses.

    Args:
        own: Who asks them.
    """

    def __init__(self, own: Identity) -> None:
        super().__init__()
        self._own = own

    def __missing__(self, address: Address) -> RemotePeer:
        return self.setdefault(address, RemotePeer(address, self._own))
