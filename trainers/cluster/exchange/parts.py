"""The processes of a cluster: a parameter server, or a worker, in the service of a chief."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from syncswitch.trainers.cluster.exchange.plans import SERVER, Hello, Part
from syncswitch.trainers.cluster.exchange.remote import serve
from syncswitch.trainers.cluster.exchange.server_part import ServerPart
from syncswitch.trainers.cluster.exchange.wire import Address, Door, Wire, dial
from syncswitch.trainers.cluster.exchange.worker_part import WorkerPart
from syncswitch.trainers.parent import die_with_parent

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
    # The chief never says a word on it: all that can be read is the end. A closed one is no file.
    with suppress(OSError, ValueError):
        while not select.select([pulse], [], [], PULSE_SECONDS)[0]:
            pulse.send(None)
    pulse.close()
    on_end()


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
