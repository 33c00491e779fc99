"""Encrypted records between two processes, into which nothing can be slipped on the way."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_LENGTH = struct.Struct("<I")
_RECORD_BYTES = 1 << 20  # of 64 KiB to 4 MiB the one that takes the least processor time
_TAG_BYTES = 16
_NONCE_BYTES = 12
# Larger than what is said of a step, smaller than vectors whose copies count.
_AHEAD_BYTES = 1 << 12
_MOST_PIECES = 512  # that one call of the system takes


class Plain:
    """A socket as it is; one thread sends while another may receive."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send_all(self, parts: Sequence[memoryview]) -> None:
        """Sends bytes from where they lie."""
        left = [part for part in parts if part.nbytes]
        while left:
            sent = self._socket.sendmsg(left[:_MOST_PIECES])
            while left and sent >= left[0].nbytes:
                sent -= left.pop(0).nbytes
            if sent:
                left[0] = left[0].cast("B")[sent:]

    def receive_into(self, memory: memoryview, flags: int = 0) -> int:
        """Receives as many bytes as there are, but one at least; 0 at the end."""
        return self._socket.recv_into(memory, 0, flags)


class Sealed:
    """A socket whose bytes only the other end can read, and only as they were sent.

    They are cut into records, each encrypted with AES-GCM under a key for this connection and this
    direction and under its number: one that is changed, repeated, left out or out of its order is
    found out. That the connection ends is not protected: whoever reads takes it for a loss.

    Args:
        connected: To the other end.
        sending: Key for what is sent.
        receiving: Key for what comes.
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

    def send_all(self, parts: Sequence[memoryview]) -> None:
        """See `Plain`."""
        for part in parts:
            for start in range(0, part.nbytes, _RECORD_BYTES):
                self._seal(part[start : start + _RECORD_BYTES])
        self._flush()

    def receive_into(self, memory: memoryview, flags: int = 0) -> int:
        """See `Plain`."""
        if not self._rest.nbytes:
            try:
                length: int = _LENGTH.unpack(self._reader.next(_LENGTH.size))[0]
            except EOFError:
                return 0
            if length > _RECORD_BYTES:
                raise ConnectionResetError("what has come is none of its messages")
            sealed = self._in[: length + _TAG_BYTES]
            self._reader.fill(sealed)
            is_whole = length <= memory.nbytes
            opened = memory[:length] if is_whole else memoryview(bytearray(length))
            nonce = self._received.to_bytes(_NONCE_BYTES, "big")
            self._received += 1
            try:
                self._receiver.decrypt_into(nonce, sealed, None, opened)
            except InvalidTag as error:
                raise ConnectionResetError("a message was changed on its way") from error
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
    """Reads a channel in pieces of a known length; short ones several at a time."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        # What was read and not yet asked for.
        self._ahead, self._start, self._stop = bytearray(_AHEAD_BYTES), 0, 0

    def next(self, size: int) -> memoryview:
        """The next bytes, until the next call.

        Raises:
            EOFError: They do not come.
        """
        if self._stop - self._start < size:
            self._read_ahead(size)
        found = memoryview(self._ahead)[self._start : self._start + size]
        self._start += size
        return found

    def fill(self, memory: memoryview) -> None:
        """Puts the next bytes there; see `next`."""
        known = min(memory.nbytes, self._stop - self._start)
        memory[:known] = self.next(known)
        memory = memory[known:]
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
                # A size is only what somebody says: memory for as much again as has come.
                self._ahead += bytes(min(size - self._stop, max(self._stop, _RECORD_BYTES)))
            received = self._channel.receive_into(memoryview(self._ahead)[self._stop :])
            if not received:
                raise EOFError
            self._stop += received
