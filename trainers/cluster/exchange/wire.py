"""Messages over sockets, with arrays beside them; only data of the expected types is accepted."""

from __future__ import annotations

import logging
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
import numpy as np

from syncswitch.trainers.cluster.exchange.security import (
    Address,
    AuthenticationError,
    Channel,
    Identity,
    Part,
    Plain,
    Reader,
    admit,
    request_entry,
)
from syncswitch.trainers.cluster.exchange.vectors import aligned
from syncswitch.trainers.job.sources import Array

_ARRAY, _OBJECTS = 1, 2
_Element = str | bytes | int | float | bool | None
_reading = threading.local()


class MalformedMessageError(OSError):
    """Something came that is not a message, or not the expected one; treated like a lost peer."""


def packed(message: Any) -> tuple[bytes, list[memoryview]]:
    """Encodes a message; returns it without its arrays, and the memory of these, where they are.

    Raises TypeError if it holds something other than data.
    """
    arrays: list[memoryview] = []

    def put(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return _put_aside(value, arrays)
        if isinstance(value, slice):
            return value.start, value.stop
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"a {type(value).__name__} is not data")

    return msgspec.msgpack.encode(message, enc_hook=put), arrays


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_checked, ext_hook=_taken)


def _put_aside(array: Array, arrays: list[memoryview]) -> msgspec.msgpack.Ext:
    if array.dtype == object:
        # Strings of unequal lengths.
        content = msgspec.msgpack.encode((array.shape, [_plain(one) for one in array.flat]))
        return msgspec.msgpack.Ext(_OBJECTS, content)
    # The `str` of types that NumPy does not know, such as bfloat16, says only how long they are.
    name = array.dtype.name if array.dtype.kind == "V" else array.dtype.str
    arrays.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    head = msgspec.msgpack.encode((len(arrays) - 1, name, array.shape))
    return msgspec.msgpack.Ext(_ARRAY, head)


def _plain(element: Any) -> _Element:
    found = element.item() if isinstance(element, np.generic) else element
    if isinstance(found, _Element):
        return found
    raise TypeError(f"an array holds a {type(element).__name__}, which is not data")


def _taken(code: int, head: memoryview) -> Array:
    if code == _OBJECTS:
        shape, elements = msgspec.msgpack.decode(head, type=tuple[tuple[int, ...], list[Any]])
        made = np.empty(len(elements), object)
        made[:] = list(map(_plain, elements))
        return made.reshape(shape)
    place, name, shape = msgspec.msgpack.decode(head, type=tuple[int, str, tuple[int, ...]])
    dtype = np.dtype(name)
    if code != _ARRAY or not 0 <= place < len(_reading.arrays) or dtype.hasobject:
        raise ValueError("not an array")
    memory = _reading.arrays[place]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != memory.nbytes:
        raise ValueError("an array of another length")
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)


def _checked(kind: Any, value: Any) -> Any:
    if kind is slice:
        return slice(*msgspec.convert(value, tuple[int, int]))
    if get_origin(kind) is np.ndarray and isinstance(value, np.ndarray):
        (scalar,) = get_args(get_args(kind)[1])
        if scalar is Any or value.dtype == scalar:
            return value
    raise ValueError(f"a {type(value).__name__} of another kind")


_LOG = logging.getLogger(__name__)

_HEAD = struct.Struct("<4sIQ")
_MARK = b"sync"
_PATIENCE_SECONDS = 10
# Connections that have not proved yet who they are; one more pushes out the oldest.
_MOST_PENDING = 64
_PAUSE_SECONDS = 0.1
_WARNING_SECONDS = 60.0
# Seconds until the first probe, between probes, and how many may go unanswered.
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


@dataclass(frozen=True)
class Message:
    """A message that was received and not decoded yet, and the memory of its arrays beside it."""

    content: memoryview
    arrays: Sequence[memoryview]

    def read(self, kind: Any) -> Any:
        """Decodes it as a value of this type, or raises MalformedMessageError.

        It can be read until the next message is received.
        """
        decoder = _decoder(kind)
        _reading.arrays = self.arrays
        try:
            return decoder.decode(self.content)
        except Exception as error:  # whatever somebody sends
            raise MalformedMessageError(f"not what was expected: {error}") from error
        finally:
            del _reading.arrays


class Wire:
    """A connection to one other process; one thread may send while another receives.

    `peer` and `channel` come from the handshake; a pair of sockets needs none.
    """

    def __init__(
        self, connected: socket.socket, peer: Part = ("", 0), channel: Channel | None = None
    ) -> None:
        self._socket = connected
        self.peer = peer
        self._channel = channel or Plain(connected)
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A machine that is gone sends nothing; keep-alive probes detect that.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE.items():
                connected.setsockopt(socket.IPPROTO_TCP, option, value)
        self._reader = Reader(self._channel)

    @property
    def is_local(self) -> bool:
        """Whether memory can be shared over it."""
        return self._socket.family == socket.AF_UNIX

    def fileno(self) -> int:
        """The descriptor, for `select`; -1 once the wire is closed."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Sends a message; raises OSError if the other end is gone."""
        content, arrays = packed(message)
        lengths = struct.pack(f"<{len(arrays)}Q", *(one.nbytes for one in arrays))
        head = _HEAD.pack(_MARK, len(arrays), len(content))
        self._channel.send_all([memoryview(head + lengths + content), *arrays])

    def receive(self, into: Any = None) -> Message:
        """Waits for a message.

        The first array that is as long as `into` goes there instead of into new memory.

        Raises:
            EOFError: The other end is gone.
            OSError: The other end is gone, or has sent something that is not a message.
        """
        mark, count, length = _HEAD.unpack(self._reader.next(_HEAD.size))
        if mark != _MARK:
            raise MalformedMessageError("this is not a message")
        arrays = []
        try:
            lengths = struct.unpack(f"<{count}Q", self._reader.next(8 * count)) if count else ()
            content = self._reader.next(length)
            for size in lengths:
                if into is not None and into.nbytes == size:
                    memory, into = memoryview(into.data).cast("B"), None
                else:
                    memory = memoryview(aligned(-(-size // 4)).data).cast("B")[:size]
                self._reader.fill(memory)
                arrays.append(memory)
        except (MemoryError, OverflowError, ValueError) as error:
            raise MalformedMessageError(f"a message is too long ({error})") from error
        return Message(content, arrays)

    def send_descriptor(self, descriptor: int) -> None:
        """Sends a file descriptor to another process of this machine, once it asks for it."""
        self._reader.next(1)
        socket.send_fds(self._socket, [b"f"], [descriptor])

    def receive_descriptor(self) -> int:
        """Asks for the descriptor that the other end sends with `send_descriptor`."""
        # Asking first keeps it apart from other bytes: a plain read of those would discard it.
        self._socket.sendall(b"f")
        content, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not content or not descriptors:
            raise EOFError
        return descriptors[0]

    def close(self) -> None:
        """Closes it at once, even while another thread waits for a message; may be called twice."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Listener:
    """Accepts connections and admits those that prove to be parts of this cluster.

    Each connection has a thread of its own, first for the handshake and then for `on_wire`. Port 0
    is any that is free; the attribute `address` has it. An error that `on_wire` raises closes the
    wire.
    """

    def __init__(
        self,
        address: Address,
        own: Identity,
        roles: Collection[str],
        on_wire: Callable[[Wire], None],
    ) -> None:
        self._own = own
        self._roles = roles
        self._on_wire = on_wire
        self.address: Address = address
        if isinstance(address, str):
            self._socket = socket.socket(socket.AF_UNIX)
            with _short(address) as name:
                self._socket.bind(name)
            self._socket.listen()
        else:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            # At this address alone, not on all interfaces of the machine.
            self._socket = socket.create_server(address, family=family, backlog=128)
            self.address = address[0], self._socket.getsockname()[1]
        self._is_closed = False
        self._changing = threading.Lock()
        # In the order in which they came.
        self._pending: dict[socket.socket, None] = {}
        self._thread = threading.Thread(target=self._serve, name="listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Admits nobody any more; wires that were admitted stay."""
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()

    def _serve(self) -> None:
        next_warning_at = 0.0
        with self._socket:
            while not self._is_closed:
                try:
                    connected, _ = self._socket.accept()
                except ConnectionAbortedError:
                    continue
                except OSError as error:  # out of descriptors or memory
                    if self._is_closed:
                        break
                    self._drop_oldest(len(self._pending) // 2)
                    if time.monotonic() >= next_warning_at:
                        next_warning_at = time.monotonic() + _WARNING_SECONDS
                        _LOG.warning(
                            "%s: cannot accept connections: %s", _text(self.address), error
                        )
                    time.sleep(_PAUSE_SECONDS)
                    continue
                with self._changing:
                    self._pending[connected] = None
                self._drop_oldest(_MOST_PENDING)
                try:
                    threading.Thread(target=self._admit, args=(connected,), daemon=True).start()
                except RuntimeError:  # there are too many threads
                    self._drop_oldest(0)
                    connected.close()
        self._drop_oldest(0)

    def _drop_oldest(self, most: int) -> None:
        with self._changing:
            oldest = list(self._pending)[: max(0, len(self._pending) - most)]
            for one in oldest:
                del self._pending[one]
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # its thread closes it

    def _admit(self, connected: socket.socket) -> None:
        try:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            peer, channel = admit(connected, self._own, self._roles, self.address, deadline)
            connected.settimeout(None)
            wire = Wire(connected, peer, channel)
        except Exception as error:  # whatever a stranger sends
            _LOG.debug("%s: a connection is turned away (%r)", _text(self.address), error)
            connected.close()
            return
        finally:
            with self._changing:
                self._pending.pop(connected, None)
        try:
            self._on_wire(wire)
        except BaseException as error:
            # Or the other end would wait for ever.
            wire.close()
            if isinstance(error, MalformedMessageError):
                _LOG.warning("%s: %s %d is cut off: %s", _text(self.address), *peer, error)
            elif not isinstance(error, (OSError, EOFError)):
                raise


def dial(address: Address, role: str, own: Identity) -> Wire:
    """Connects to a listener, which must have this role.

    Raises OSError if nobody listens there, or not the part that was meant.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        connected = _connected(address)
        try:
            channel = request_entry(connected, own, role, address, deadline)
            connected.settimeout(None)
            return Wire(connected, (role, 0), channel)
        except AuthenticationError as error:
            connected.close()
            raise ConnectionRefusedError(
                f"{_text(address)} does not know the cluster's secret, or is no {role} of it"
            ) from error
        except (EOFError, ConnectionResetError, BrokenPipeError) as error:
            # The listener may have been crowded.
            connected.close()
            if time.monotonic() > deadline:
                raise ConnectionRefusedError(
                    f"{_text(address)} accepts no connections, or no {own.part[0]}"
                ) from error
            time.sleep(_PAUSE_SECONDS)
        except BaseException:
            connected.close()
            raise


def _text(address: Address) -> str:
    return address if isinstance(address, str) else "{}:{}".format(*address)


def _connected(address: Address) -> socket.socket:
    if not isinstance(address, str):
        return socket.create_connection(address, timeout=_PATIENCE_SECONDS)
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(_PATIENCE_SECONDS)
    try:
        with _short(address) as name:
            connected.connect(name)
    except BaseException:
        connected.close()
        raise
    return connected


@contextmanager
def _short(path: str) -> Iterator[str]:
    """Yields another name of the path, short enough for a socket (about 100 characters)."""
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
