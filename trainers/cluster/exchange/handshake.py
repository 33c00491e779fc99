"""The handshake by which two processes of a cluster prove to each other that they belong to it.

Each sends a fresh X25519 key. From the shared key, the secret of the cluster and the transcript
(both roles, the address that was dialed, both fresh keys) both derive the same keys: one for each
proof, and one for each direction of what follows. So a proof is worth nothing on any other
connection: it cannot be reflected, relayed to another listener or replayed. Learning the secret
later does not decrypt earlier traffic.

    dialer   -> its part, a fresh key
    listener -> a fresh key, its proof
    dialer   -> its proof
    listener -> one byte: accepted
"""

from __future__ import annotations

import hmac
import socket
import struct
import time
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

Address = str | tuple[str, int]
"""The path of a socket on this machine, or host and port."""

Part = tuple[str, int]
"""Role and number, such as `("worker", 2)`."""

PROTOCOL = b"syncswitch cluster 1"
ACCEPTED = b"\x01"
_HELLO = struct.Struct("<20s8sI32s")
_KEY_BYTES = 32
_LEAST_WAIT_SECONDS = 0.1


class StrangerError(ConnectionRefusedError):
    """The other end does not know the secret, or expected another connection."""


@dataclass(frozen=True)
class Identity:
    """The part of the cluster that a process is, and the secret that proves it.

    A secret of None means that everybody is trusted and nothing is encrypted.
    """

    part: Part
    secret: bytes | None = field(repr=False)


@dataclass(frozen=True)
class Session:
    """The outcome of a handshake.

    The keys for what is sent and received are None where nothing is encrypted.
    """

    peer: Part
    sending: bytes | None = field(repr=False)
    receiving: bytes | None = field(repr=False)


def request_entry(
    connected: socket.socket, own: Identity, role: str, address: Address, deadline: float
) -> Session:
    """Runs the dialer's side of the handshake.

    `deadline` is on the monotonic clock.

    Raises:
        StrangerError: The listener is not the one that was meant, or does not know the secret.
        OSError: The connection broke, or the deadline passed.
        EOFError: The listener hung up.
    """
    fresh = X25519PrivateKey.generate()
    job, number = own.part
    hello = _HELLO.pack(PROTOCOL, job.encode(), number, fresh.public_key().public_bytes_raw())
    connected.sendall(hello)
    answer = _received(connected, 2 * _KEY_BYTES, deadline)
    theirs, proof = answer[:_KEY_BYTES], answer[_KEY_BYTES:]
    keys = _keys(own, fresh, theirs, (hello, theirs, role, _normal(address)))
    if not hmac.compare_digest(keys[0], proof):
        raise StrangerError
    connected.sendall(keys[1])
    _received(connected, len(ACCEPTED), deadline)
    return _session(own, (role, 0), keys[2], keys[3])


def admit(
    connected: socket.socket,
    own: Identity,
    roles: Collection[str],
    address: Address,
    deadline: float,
) -> Session:
    """Runs the listener's side of the handshake.

    `address` is that by which others find the listener, `deadline` on the monotonic clock.

    Raises:
        StrangerError: The dialer has no such role, or does not know the secret.
        OSError: The connection broke, or the deadline passed.
        EOFError: The dialer hung up.
    """
    hello = _received(connected, _HELLO.size, deadline)
    protocol, written, number, theirs = _HELLO.unpack(hello)
    role = written.rstrip(b"\0").decode(errors="replace")
    if protocol != PROTOCOL or role not in roles:
        raise StrangerError
    fresh = X25519PrivateKey.generate()
    public = fresh.public_key().public_bytes_raw()
    keys = _keys(own, fresh, theirs, (hello, public, own.part[0], _normal(address)))
    connected.sendall(public + keys[0])
    if not hmac.compare_digest(keys[1], _received(connected, _KEY_BYTES, deadline)):
        raise StrangerError
    connected.sendall(ACCEPTED)
    return _session(own, (role, number), keys[3], keys[2])


def _keys(
    own: Identity, fresh: X25519PrivateKey, theirs: bytes, transcript: tuple[object, ...]
) -> list[bytes]:
    """Derives the proofs of listener and dialer, and the keys for what dialer and listener send."""
    try:
        common = fresh.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError as error:  # a key of low order, which would make the shared key zero
        raise StrangerError from error
    info = msgspec.msgpack.encode((*transcript, own.secret is None))
    derivation = HKDF(SHA256(), 4 * _KEY_BYTES, salt=None, info=info)
    made = derivation.derive(common + (own.secret or b""))
    return [made[start : start + _KEY_BYTES] for start in range(0, len(made), _KEY_BYTES)]


def _session(own: Identity, peer: Part, sending: bytes, receiving: bytes) -> Session:
    return Session(peer, None, None) if own.secret is None else Session(peer, sending, receiving)


def _normal(address: Address) -> Address:
    return address if isinstance(address, str) else (address[0].lower(), address[1])


def _received(connected: socket.socket, size: int, deadline: float) -> bytes:
    """Receives exactly `size` bytes; leaves a timeout on the socket."""
    received = b""
    while len(received) < size:
        connected.settimeout(max(_LEAST_WAIT_SECONDS, deadline - time.monotonic()))
        part = connected.recv(size - len(received))
        if not part:
            raise EOFError
        received += part
    return received
