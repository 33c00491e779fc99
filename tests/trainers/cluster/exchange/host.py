"""A listener and the wires that it has admitted."""

from __future__ import annotations

import queue
import socket

from syncswitch.trainers.cluster.exchange import wire
from syncswitch.trainers.cluster.exchange.plans import SERVER, WORKER
from syncswitch.trainers.cluster.exchange.security import Address, Identity
from syncswitch.trainers.cluster.exchange.wire import Listener, Wire, dial

SECRET = b"of this cluster alone"
OF_SERVER, OF_WORKER = Identity((SERVER, 0), SECRET), Identity((WORKER, 3), SECRET)
LOOPBACK: Address = ("127.0.0.1", 0)


class Host:
    """The listener of a parameter server, with a queue of admitted wires."""

    def __init__(self, address: Address, own: Identity = OF_SERVER) -> None:
        self.guests: queue.SimpleQueue[Wire] = queue.SimpleQueue()
        self.listener = Listener(address, own, (WORKER,), self.guests.put)

    def connected(self) -> tuple[Wire, Wire]:
        """Returns both ends of a new wire."""
        outside = dial(self.listener.address, SERVER, OF_WORKER)
        return outside, self.guests.get(timeout=20)

    def stranger(self) -> socket.socket:
        """Returns a connection that has sent nothing yet."""
        raw = wire._connected(self.listener.address)
        raw.settimeout(20)
        return raw
