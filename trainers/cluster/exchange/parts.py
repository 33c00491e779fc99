"""The processes of a cluster: a parameter server, or a worker, in the service of a chief."""

from __future__ import annotations

import os
import select
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from syncswitch.trainers.cluster.exchange.handshake import Address, Identity, Part
from syncswitch.trainers.cluster.exchange.plans import CHIEF, SERVER, Hello
from syncswitch.trainers.cluster.exchange.remote import serve
from syncswitch.trainers.cluster.exchange.server_part import ServerPart
from syncswitch.trainers.cluster.exchange.wire import Door, Wire, dial
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
