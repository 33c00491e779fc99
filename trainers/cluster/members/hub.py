"""The chief's door: which processes of its cluster are there, and when each was heard of last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from syncswitch.trainers.cluster.exchange.handshake import Address, Identity, Part
from syncswitch.trainers.cluster.exchange.plans import CHIEF, SERVER, WORKER, Hello
from syncswitch.trainers.cluster.exchange.wire import Door, Wire


@dataclass(eq=False)
class Arrival:
    """A process that has come.

    Attributes:
        token: Of it; see `Hello`.
        address: Where others reach it.
        wire: For calls; it has proved which part it is.
        heard_seconds: When it was heard of last, on the monotonic clock.
        is_gone: Whether it has ended, or has been given up.
    """

    token: str
    address: Address
    wire: Wire
    heard_seconds: float = field(default_factory=time.monotonic)
    is_gone: bool = False
    pulse: Wire | None = None

    def drop(self) -> None:
        """Gives it up; whoever waits for it learns so at once, and it itself as well."""
        self.is_gone = True
        for wire in (self.wire, self.pulse):
            if wire is not None:
                wire.close()


# A process says that it lives on a second wire, which may overtake the first one.
_PATIENCE_SECONDS = 10.0


class Hub:
    """Lets the parts of a cluster in.

    Args:
        address: Where.
        secret: Of the cluster; see `Identity`.
    """

    def __init__(self, address: Address, secret: bytes | None) -> None:
        self._there: dict[Part, Arrival] = {}
        self._changed = threading.Condition()
        own = Identity((CHIEF, 0), secret)
        self._door = Door(address, own, (SERVER, WORKER), self._on_wire)
        self.address = self._door.address

    def wait_for(self, part: Part, seconds: float) -> Arrival | None:
        """The process that is this part, which may take so long to come."""
        return self._awaited(part, lambda arrival: not arrival.is_gone, seconds)

    def drop(self, part: Part) -> None:
        """Gives up the process that is this part, if there is one."""
        with self._changed:
            arrival = self._there.get(part)
        if arrival is not None:
            arrival.drop()

    def close(self) -> None:
        """Lets nobody in any more, and gives up all."""
        self._door.close()
        with self._changed:
            there = list(self._there.values())
        for arrival in there:
            arrival.drop()

    def _awaited(
        self, part: Part, is_right: Callable[[Arrival], bool], seconds: float
    ) -> Arrival | None:
        def right() -> Arrival | None:
            arrival = self._there.get(part)
            return arrival if arrival is not None and is_right(arrival) else None

        with self._changed:
            return self._changed.wait_for(right, seconds)

    def _on_wire(self, wire: Wire) -> None:
        hello: Hello = wire.receive().read(Hello)
        if hello.address is not None:
            self._welcome(Arrival(hello.token, hello.address, wire))
            return
        arrival = self._awaited(
            wire.peer, lambda found: found.token == hello.token, _PATIENCE_SECONDS
        )
        if arrival is None:
            wire.close()
            return
        arrival.pulse = wire
        try:
            while True:
                wire.receive().read(None)
                arrival.heard_seconds = time.monotonic()
        except (OSError, EOFError):
            arrival.drop()

    def _welcome(self, arrival: Arrival) -> None:
        with self._changed:
            former = self._there.get(arrival.wire.peer)
            self._there[arrival.wire.peer] = arrival
            self._changed.notify_all()
        if former is not None:
            former.drop()
