"""How two processes of a cluster prove to each other that they belong to it.

Each sends a fresh key of X25519. From what these two have in common, the secret of the cluster, and
the transcript (both roles, the address that was dialed, both fresh keys) both derive the same keys:
one by which each proves that it knows them, and one for what each sends afterwards. So nothing that
was said on one connection counts on another: not sent back, not passed on to another door, and not
later. Who finds out the secret one day cannot read what he has recorded before.

    who dials -> its part, a fresh key
    door      -> a fresh key, its proof
    who dials -> its proof
    door      -> one byte: come in
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Collection, Generator
from dataclasses import dataclass, field

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

Address = str | tuple[str, int]
"""Path of a socket on this machine, or host and port."""

Part = tuple[str, int]
"""Role and number, such as `("worker", 2)`."""

LEAST_SECRET_BYTES = 16
PROTOCOL = b"syncswitch cluster 1"
WELCOME = b"\x01"
_HELLO = struct.Struct("<20s8sI32s")
_KEY = 32


class StrangerError(ConnectionRefusedError):
    """The other end does not know the secret, or means another connection."""


@dataclass(frozen=True)
class Identity:
    """Who a process is, and how it proves that.

    Attributes:
        part: The part of the cluster that it is.
        secret: The cluster's; None where everybody is trusted, and nothing is encrypted.
    """

    part: Part
    secret: bytes | None = field(repr=False)

    def __post_init__(self) -> None:
        if self.secret is not None and len(self.secret) < LEAST_SECRET_BYTES:
            raise ValueError(f"a secret of less than {LEAST_SECRET_BYTES} bytes")


@dataclass(frozen=True)
class Session:
    """The outcome of a handshake.

    Attributes:
        peer: The one at the other end.
        sending: Key for what is sent; None where nothing is encrypted.
        receiving: Key for what comes.
    """

    peer: Part
    sending: bytes | None = field(repr=False)
    receiving: bytes | None = field(repr=False)


Talk = Generator[tuple[bytes, int], bytes, Session]
"""Yields what to send and how many bytes to wait for; is sent these."""


def dialing(own: Identity, role: str, address: Address) -> Talk:
    """The talk of whoever dials.

    Args:
        own: Who dials.
        role: The role of the part that is expected to answer.
        address: The address that was dialed.

    Raises:
        StrangerError: It is somebody else.
    """
    fresh = X25519PrivateKey.generate()
    job, number = own.part
    hello = _HELLO.pack(PROTOCOL, job.encode(), number, fresh.public_key().public_bytes_raw())
    answer = yield hello, 2 * _KEY
    keys = _keys(own, fresh, answer[:_KEY], (hello, answer[:_KEY], role, _normal(address)))
    if not hmac.compare_digest(keys[0], answer[_KEY:]):
        raise StrangerError
    yield keys[1], len(WELCOME)
    return _session(own, (role, 0), keys[2], keys[3])


def welcoming(own: Identity, roles: Collection[str], address: Address) -> Talk:
    """The talk of a door.

    Args:
        own: The part whose door it is.
        roles: The roles that may come in.
        address: The address by which others find it.

    Raises:
        StrangerError: Somebody else has come.
    """
    hello = yield b"", _HELLO.size
    protocol, written, number, theirs = _HELLO.unpack(hello)
    role = written.rstrip(b"\0").decode(errors="replace")
    if protocol != PROTOCOL or role not in roles:
        raise StrangerError
    fresh = X25519PrivateKey.generate()
    public = fresh.public_key().public_bytes_raw()
    keys = _keys(own, fresh, theirs, (hello, public, own.part[0], _normal(address)))
    proof = yield public + keys[0], _KEY
    if not hmac.compare_digest(keys[1], proof):
        raise StrangerError
    return _session(own, (role, number), keys[3], keys[2])


def _keys(
    own: Identity, fresh: X25519PrivateKey, theirs: bytes, transcript: tuple[object, ...]
) -> list[bytes]:
    """The door's proof and that of who dials, and the keys for what he sends and what it sends."""
    try:
        common = fresh.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError as error:  # a key that makes everything the same
        raise StrangerError from error
    told = msgspec.msgpack.encode((*transcript, own.secret is None))
    made = HKDF(SHA256(), 4 * _KEY, salt=None, info=told).derive(common + (own.secret or b""))
    return [made[start : start + _KEY] for start in range(0, len(made), _KEY)]


def _session(own: Identity, peer: Part, sending: bytes, receiving: bytes) -> Session:
    return Session(peer, None, None) if own.secret is None else Session(peer, sending, receiving)


def _normal(address: Address) -> Address:
    return address if isinstance(address, str) else (address[0].lower(), address[1])
