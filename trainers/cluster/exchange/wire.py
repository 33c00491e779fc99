"""Authenticated connections that carry long vectors without a copy."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from syncswitch.trainers.cluster.exchange.memory import aligned

Address = str | tuple[str, int]
"""Path of a socket on this machine, or host and port."""

_HEAD = struct.Struct("<4sIQ")
_MARK = b"sync"
# Larger than what is said of a step, smaller than vectors whose copies count.
_AHEAD_BYTES = 1 << 12
_MOST_PIECES = 512  # that one call of the system takes
_PATIENCE_SECONDS = 10
# Seconds until the first question, between questions, and how many go unanswered.
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


class Wire:
    """A connection to one other process; one thread sends while another may receive.

    Messages are pickled, which is safe as far as the one at the other end knows the secret. Arrays
    in them travel beside the pickle, from where they lie.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        # What was read and not yet asked for.
        self._ahead, self._start, self._stop = bytearray(_AHEAD_BYTES), 0, 0
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A machine that is gone says nothing more; the system finds that out.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE.items():
                connected.setsockopt(socket.IPPROTO_TCP, option, value)

    @property
    def is_local(self) -> bool:
        """Whether memory can be shared over it."""
        return self._socket.family == socket.AF_UNIX

    def fileno(self) -> int:
        """For `select`; -1 once it is closed."""
        return self._socket.fileno()

    def detach(self) -> int:
        """The file descriptor, which this object lets go."""
        return self._socket.detach()

    def send(self, message: Any) -> None:
        """Sends a message.

        Raises:
            OSError: The other end is gone.
        """
        arrays: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(message, protocol=5, buffer_callback=arrays.append)
        parts = [one.raw() for one in arrays]
        lengths = [part.nbytes for part in parts]
        head = _HEAD.pack(_MARK, len(parts), len(pickled))
        head += struct.pack(f"<{len(parts)}Q", *lengths)
        self._send_all([memoryview(head + pickled), *parts])

    def receive(self, into: Any = None) -> Any:
        """Waits for a message.

        Args:
            into: Vector that takes the first array that is as long, instead of new memory.

        Raises:
            EOFError: The other end is gone.
            OSError: Likewise.
        """
        mark, count, pickled_length = _HEAD.unpack(self._next(_HEAD.size))
        if mark != _MARK:
            raise OSError("this is no message")
        lengths = struct.unpack(f"<{count}Q", self._next(8 * count)) if count else ()
        pickled = self._next(pickled_length)
        arrays = []
        for length in lengths:
            if into is not None and into.nbytes == length:
                memory, into = memoryview(into.data).cast("B"), None
            else:
                memory = memoryview(aligned(-(-length // 4)).data).cast("B")[:length]
            self._receive_into(memory)
            arrays.append(memory)
        return pickle.loads(pickled, buffers=arrays)

    def send_descriptor(self, descriptor: int) -> None:
        """Gives the other end, on this machine, a file; returns when it takes it."""
        self._next(1)
        socket.send_fds(self._socket, [b"f"], [descriptor])

    def receive_descriptor(self) -> int:
        """Takes what `send_descriptor` gives."""
        # It must not come with other bytes, which would be read without it.
        self._socket.sendall(b"f")
        content, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not content:
            raise EOFError
        return descriptors[0]

    def close(self) -> None:
        """Ends it at once, also for a thread that waits for a message; may be called twice."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send_all(self, parts: Sequence[memoryview]) -> None:
        left = [part for part in parts if part.nbytes]
        while left:
            sent = self._socket.sendmsg(left[:_MOST_PIECES])
            while left and sent >= left[0].nbytes:
                sent -= left.pop(0).nbytes
            if sent:
                left[0] = left[0].cast("B")[sent:]

    def _next(self, size: int) -> memoryview:
        """The next bytes; short messages are read with one call of the system."""
        if self._stop - self._start < size:
            self._read_ahead(size)
        found = memoryview(self._ahead)[self._start : self._start + size]
        self._start += size
        return found

    def _read_ahead(self, size: int) -> None:
        rest = self._ahead[self._start : self._stop]
        if size > len(self._ahead) or len(self._ahead) > _AHEAD_BYTES:
            self._ahead = bytearray(max(size, _AHEAD_BYTES))
        self._ahead[: len(rest)] = rest
        self._start, self._stop = 0, len(rest)
        while self._stop < size:
            received = self._socket.recv_into(memoryview(self._ahead)[self._stop :])
            if not received:
                raise EOFError
            self._stop += received

    def _receive_into(self, memory: memoryview) -> None:
        known = min(memory.nbytes, self._stop - self._start)
        memory[:known] = self._next(known)
        memory = memory[known:]
        while memory.nbytes:
            received = self._socket.recv_into(memory, 0, socket.MSG_WAITALL)
            if not received:
                raise EOFError
            memory = memory[received:]


class Door:
    """Where others connect; authenticates each of them in a thread of its own.

    Args:
        address: Where; port 0 for one that is free.
        secret: Of the cluster.
        on_wire: Called in that thread with each new wire; whatever it raises ends the wire.
    """

    def __init__(self, address: Address, secret: bytes, on_wire: Callable[[Wire], None]) -> None:
        self._secret = secret
        self._on_wire = on_wire
        if isinstance(address, str):
            self._socket = socket.socket(socket.AF_UNIX)
            with _short(address) as name:
                self._socket.bind(name)
            self._socket.listen()
            self.address: Address = address
        else:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            # At this address alone, not at all interfaces of the machine.
            self._socket = socket.create_server(address, family=family, backlog=128)
            self.address = self._socket.getsockname()[:2]
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def close(self) -> None:
        """Lets nobody in any more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._welcome, args=(accepted,), daemon=True).start()

    def _welcome(self, accepted: socket.socket) -> None:
        try:
            _authenticate(accepted, self._secret, is_host=True)
        except (OSError, EOFError, AuthenticationError):
            accepted.close()
            return
        wire = Wire(accepted)
        try:
            self._on_wire(wire)
        except (OSError, EOFError):
            wire.close()
        except BaseException:
            # Or whoever is at the other end would wait for ever.
            wire.close()
            raise


def dial(address: Address, secret: bytes) -> Wire:
    """Connects to a door.

    Raises:
        OSError: Nobody is there, or it is somebody else.
    """
    if isinstance(address, str):
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(_PATIENCE_SECONDS)
        with _short(address) as name:
            connected.connect(name)
    else:
        connected = socket.create_connection(address, timeout=_PATIENCE_SECONDS)
    try:
        _authenticate(connected, secret, is_host=False)
    except (EOFError, AuthenticationError) as error:
        connected.close()
        raise ConnectionRefusedError(f"{address} does not know the cluster's secret") from error
    except OSError:
        connected.close()
        raise
    return Wire(connected)


@contextmanager
def _short(path: str) -> Iterator[str]:
    """The same path within the hundred letters that a socket's may have, wherever TMPDIR is."""
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def _authenticate(connected: socket.socket, secret: bytes, *, is_host: bool) -> None:
    """Each proves to the other that it knows the secret, which neither sends."""
    connected.settimeout(None)
    _limit(connected, _PATIENCE_SECONDS)
    connection = Connection(os.dup(connected.fileno()))
    try:
        exchanges = [deliver_challenge, answer_challenge]
        for exchange in exchanges if is_host else reversed(exchanges):
            exchange(connection, secret)
    finally:
        connection.close()
    _limit(connected, 0)


def _limit(connected: socket.socket, seconds: int) -> None:
    """How long the system waits for the other end; 0 for ever."""
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
