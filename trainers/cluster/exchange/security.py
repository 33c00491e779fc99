"""Who is let in, and the encryption of what is said.

In a handshake two processes of a cluster prove to each other that they belong to it. Each sends a
fresh X25519 key. From the shared key, the secret of the cluster and the transcript (both roles, the
address that was dialed, both fresh keys) both derive the same keys: one for each proof, and one for
each direction of what follows. So a proof is worth nothing on any other connection: it cannot be
reflected, relayed to another listener or replayed. Learning the secret later does not decrypt
earlier traffic.

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
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

Address = str | tuple[str, int]
"""The path of a socket on this machine, or host and port."""

Part = tuple[str, int]
"""Role and number, such as `("worker", 2)`."""

PROTOCOL = b"syncswitch cluster 2"
ACCEPTED = b"\x01"
_HELLO = struct.Struct("<20s8sI32s")
_KEY_BYTES = 32
_LEAST_WAIT_SECONDS = 0.1


class AuthenticationError(ConnectionRefusedError):
    """The other end does not know the secret, or expected another connection."""


@dataclass(frozen=True)
class Identity:
    """The part of the cluster that a process is, and the secret that proves it.

    A secret of None means that everybody is trusted and nothing is encrypted.
    """

    part: Part
    secret: bytes | None = field(repr=False)


def request_entry(
    connected: socket.socket, own: Identity, role: str, address: Address, deadline: float
) -> Channel:
    """Runs the dialer's side of the handshake; returns the channel for what follows.

    `deadline` is on the monotonic clock.

    Raises:
        AuthenticationError: The other end is another one, or does not know the secret.
        OSError: The connection broke, or the deadline passed.
        EOFError: The other end hung up.
    """
    fresh = X25519PrivateKey.generate()
    job, number = own.part
    hello = _HELLO.pack(PROTOCOL, job.encode(), number, fresh.public_key().public_bytes_raw())
    connected.sendall(hello)
    answer = _received(connected, 2 * _KEY_BYTES, deadline)
    theirs, proof = answer[:_KEY_BYTES], answer[_KEY_BYTES:]
    keys = _keys(own, fresh, theirs, (hello, theirs, role, _normal(address)))
    if not hmac.compare_digest(keys[0], proof):
        raise AuthenticationError
    connected.sendall(keys[1])
    _received(connected, len(ACCEPTED), deadline)
    return _channel(connected, own, keys[2], keys[3])


def admit(
    connected: socket.socket,
    own: Identity,
    roles: Collection[str],
    address: Address,
    deadline: float,
) -> tuple[Part, Channel]:
    """Runs the listener's side of the handshake, see `request_entry`.

    `address` is that by which others find the listener. Returns the part that has dialed, and the
    channel for what follows; raises AuthenticationError also for a part with none of these `roles`.
    """
    hello = _received(connected, _HELLO.size, deadline)
    protocol, written, number, theirs = _HELLO.unpack(hello)
    role = written.rstrip(b"\0").decode(errors="replace")
    if protocol != PROTOCOL or role not in roles:
        raise AuthenticationError
    fresh = X25519PrivateKey.generate()
    public = fresh.public_key().public_bytes_raw()
    keys = _keys(own, fresh, theirs, (hello, public, own.part[0], _normal(address)))
    connected.sendall(public + keys[0])
    if not hmac.compare_digest(keys[1], _received(connected, _KEY_BYTES, deadline)):
        raise AuthenticationError
    connected.sendall(ACCEPTED)
    return (role, number), _channel(connected, own, keys[3], keys[2])


def _keys(
    own: Identity, fresh: X25519PrivateKey, theirs: bytes, transcript: tuple[object, ...]
) -> list[bytes]:
    """Derives the proofs of listener and dialer, and the keys for what dialer and listener send."""
    try:
        common = fresh.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError as error:  # a key of low order, which would make the shared key zero
        raise AuthenticationError from error
    info = msgspec.msgpack.encode((*transcript, own.secret is None))
    derivation = HKDF(SHA256(), 4 * _KEY_BYTES, salt=None, info=info)
    made = derivation.derive(common + (own.secret or b""))
    return [made[start : start + _KEY_BYTES] for start in range(0, len(made), _KEY_BYTES)]


def _channel(connected: socket.socket, own: Identity, sending: bytes, receiving: bytes) -> Channel:
    if own.secret is None or connected.family == socket.AF_UNIX:
        return Plain(connected)
    return Sealed(connected, sending, receiving)


def _normal(address: Address) -> Address:
    return address if isinstance(address, str) else (address[0].lower(), address[1])


def _received(connected: socket.socket, size: int, deadline: float) -> bytes:
    """Receives exactly `size` bytes; leaves a timeout on the socket."""
    received = b""
    while len(received) < size:
        connected.settimeout(max(_LEAST_WAIT_SECONDS, deadline - time.monotonic()))
        arrived = connected.recv(size - len(received))
        if not arrived:
            raise EOFError
        received += arrived
    return received


_LENGTH = struct.Struct("<I")
_RECORD_BYTES = 1 << 20  # takes the least processor time of all sizes from 64 KiB to 4 MiB
_TAG_BYTES = 16
_NONCE_BYTES = 12
# More than the messages about a step, less than vectors whose copies would count.
_AHEAD_BYTES = 1 << 12
_MOST_PIECES = 512  # fewer than one system call accepts


class Plain:
    """A bare socket; one thread may send while another receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send_all(self, pieces: Sequence[memoryview]) -> None:
        left = [piece for piece in pieces if piece.nbytes]
        while left:
            sent = self._socket.sendmsg(left[:_MOST_PIECES])
            while left and sent >= left[0].nbytes:
                sent -= left.pop(0).nbytes
            if sent:
                left[0] = left[0].cast("B")[sent:]

    def receive_into(self, memory: memoryview, flags: int = 0) -> int:
        """Receives what has arrived, at least one byte; returns how many, 0 at the end."""
        return self._socket.recv_into(memory, 0, flags)


class Sealed:
    """An encrypted socket; bytes arrive as they were sent, or not at all.

    They are cut into records. Each is encrypted with AES-GCM under a key for this connection and
    direction, with its number as the nonce, so that a record that is changed, repeated, left out or
    reordered is detected. The end of the connection is not authenticated: readers treat it as a
    loss.
    """

    def __init__(self, connected: socket.socket, sending: bytes, receiving: bytes) -> None:
        self._socket = connected
        self._sender, self._receiver = AESGCM(sending), AESGCM(receiving)
        self._sent = self._received = 0
        self._out = memoryview(bytearray(_LENGTH.size + _RECORD_BYTES + _TAG_BYTES))
        self._in = memoryview(bytearray(_RECORD_BYTES + _TAG_BYTES))
        self._filled = 0
        self._reader = Reader(Plain(connected))
        self._rest = memoryview(b"")

    def send_all(self, pieces: Sequence[memoryview]) -> None:
        for piece in pieces:
            for start in range(0, piece.nbytes, _RECORD_BYTES):
                self._seal(piece[start : start + _RECORD_BYTES])
        self._flush()

    def receive_into(self, memory: memoryview, flags: int = 0) -> int:
        if not self._rest.nbytes:
            try:
                length: int = _LENGTH.unpack(self._reader.next(_LENGTH.size))[0]
            except EOFError:
                return 0
            if length > _RECORD_BYTES:
                raise ConnectionResetError("a record is too long")
            sealed = self._in[: length + _TAG_BYTES]
            self._reader.fill(sealed)
            is_whole = length <= memory.nbytes
            opened = memory[:length] if is_whole else memoryview(bytearray(length))
            nonce = self._received.to_bytes(_NONCE_BYTES, "big")
            self._received += 1
            try:
                self._receiver.decrypt_into(nonce, sealed, None, opened)
            except InvalidTag as error:
                raise ConnectionResetError("a message was changed on the way") from error
            if is_whole:
                return length
            self._rest = opened
        length = min(memory.nbytes, self._rest.nbytes)
        memory[:length] = self._rest[:length]
        self._rest = self._rest[length:]
        return length

    def _seal(self, piece: memoryview) -> None:
        stop = self._filled + _LENGTH.size + piece.nbytes + _TAG_BYTES
        if stop > self._out.nbytes:
            self._flush()
            stop = _LENGTH.size + piece.nbytes + _TAG_BYTES
        _LENGTH.pack_into(self._out, self._filled, piece.nbytes)
        nonce = self._sent.to_bytes(_NONCE_BYTES, "big")
        self._sent += 1
        place = self._out[self._filled + _LENGTH.size : stop]
        self._sender.encrypt_into(nonce, piece, None, place)
        self._filled = stop

    def _flush(self) -> None:
        filled, self._filled = self._filled, 0
        self._socket.sendall(self._out[:filled])


Channel = Plain | Sealed


class Reader:
    """Reads pieces of known lengths from a channel; short ones are read ahead."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        # Bytes that were read and not asked for yet.
        self._ahead, self._start, self._stop = bytearray(_AHEAD_BYTES), 0, 0

    def next(self, size: int) -> memoryview:
        """Returns the next bytes, until the next call; EOFError if the channel ends before."""
        if self._stop - self._start < size:
            self._read_ahead(size)
        self._start += size
        return memoryview(self._ahead)[self._start - size : self._start]

    def fill(self, memory: memoryview) -> None:
        """Fills `memory` with the next bytes; see `next`."""
        ahead = min(memory.nbytes, self._stop - self._start)
        memory[:ahead] = self.next(ahead)
        memory = memory[ahead:]
        while memory.nbytes:
            received = self._channel.receive_into(memory, socket.MSG_WAITALL)
            if not received:
                raise EOFError
            memory = memory[received:]

    def _read_ahead(self, size: int) -> None:
        rest = self._ahead[self._start : self._stop]
        if size > len(self._ahead) or len(self._ahead) > _AHEAD_BYTES:
            self._ahead = bytearray(_AHEAD_BYTES)
        self._ahead[: len(rest)] = rest
        self._start, self._stop = 0, len(rest)
        while self._stop < size:
            if self._stop == len(self._ahead):
                # A size is only announced: take no more memory at a time than what has arrived.
                self._ahead += bytes(min(size - self._stop, max(self._stop, _RECORD_BYTES)))
            received = self._channel.receive_into(memoryview(self._ahead)[self._stop :])
            if not received:
                raise EOFError
            self._stop += received
