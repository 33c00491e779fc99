"""Messages as bytes, with arrays beside them; what comes in is data, and of the expected type."""

from __future__ import annotations

import errno
import logging
import math
import os
import selectors
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

from syncswitch.trainers.cluster.exchange.handshake import (
    WELCOME,
    Address,
    Identity,
    Session,
    StrangerError,
    Talk,
    dialing,
    welcoming,
)
from syncswitch.trainers.cluster.exchange.sealed import Channel, Plain, Reader, Sealed
from syncswitch.trainers.cluster.exchange.vectors import aligned
from syncswitch.trainers.job.sources.source import Array

_ARRAY, _OBJECTS = 1, 2
_Element = str | bytes | int | float | bool | None
_reading = threading.local()


class OddMessageError(OSError):
    """Something came that is no message, or none that is awaited; as good as none."""


def packed(message: Any) -> tuple[bytes, list[memoryview]]:
    """A message without its arrays, and these.

    Raises:
        TypeError: It holds something else than data.
    """
    beside: list[memoryview] = []

    def put(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return _put_aside(value, beside)
        if isinstance(value, slice):
            return value.start, value.stop
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, range):
            return list(value)
        raise TypeError(f"a {type(value).__name__} is no data")

    return msgspec.msgpack.encode(message, enc_hook=put), beside


def unpacked(content: memoryview, beside: Sequence[memoryview], kind: Any) -> Any:
    """The message.

    Args:
        content: The message without its arrays.
        beside: Its arrays.
        kind: Type of what is awaited.

    Raises:
        OddMessageError: It is something else.
    """
    decoder = _decoder(kind)
    _reading.beside = beside
    try:
        return decoder.decode(content)
    except Exception as error:  # whatever it is that somebody sends
        raise OddMessageError(f"not what was awaited: {error}") from error
    finally:
        del _reading.beside


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_checked, ext_hook=_taken)


def _put_aside(array: Array, beside: list[memoryview]) -> msgspec.msgpack.Ext:
    if array.dtype == object:
        # Texts of unequal lengths.
        content = msgspec.msgpack.encode((array.shape, [_plain(one) for one in array.flat]))
        return msgspec.msgpack.Ext(_OBJECTS, content)
    # Of types such as bfloat16, which NumPy does not know, the text is that of some bytes.
    name = array.dtype.name if array.dtype.kind == "V" else array.dtype.str
    beside.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    head = msgspec.msgpack.encode((len(beside) - 1, name, array.shape))
    return msgspec.msgpack.Ext(_ARRAY, head)


def _plain(element: Any) -> _Element:
    found = element.item() if isinstance(element, np.generic) else element
    if isinstance(found, _Element):
        return found
    raise TypeError(f"an array holds a {type(element).__name__}, which is no data")


def _taken(code: int, head: memoryview) -> Array:
    if code == _OBJECTS:
        shape, elements = msgspec.msgpack.decode(head, type=tuple[tuple[int, ...], list[Any]])
        made = np.empty(len(elements), object)
        made[:] = list(map(_plain, elements))
        return made.reshape(shape)
    place, name, shape = msgspec.msgpack.decode(head, type=tuple[int, str, tuple[int, ...]])
    dtype = np.dtype(name)
    if code != _ARRAY or not 0 <= place < len(_reading.beside) or dtype.hasobject:
        raise ValueError("no array")
    memory = _reading.beside[place]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != memory.nbytes:
        raise ValueError("an array of another length")
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)


def _checked(kind: Any, value: Any) -> Any:
    """A value of a type that msgspec does not know."""
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
# Who knocks at a door waits in a line of so many; with the next one the first has to leave.
_MOST_STRANGERS = 64
_PACE_SECONDS = 0.005
_PAUSE_SECONDS = 0.1
_QUIET_SECONDS = 60.0
# So long after descriptors ran out the line stays shorter, so that some are free for others.
_SHORTAGE_SECONDS = 1.0
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Seconds until the first question, between questions, and how many go unanswered.
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


class Message:
    """A message that has come, before it is known of what type it is.

    Args:
        content: The message without its arrays.
        beside: Its arrays.
    """

    def __init__(self, content: memoryview, beside: list[memoryview]) -> None:
        self._content = content
        self._beside = beside

    def read(self, kind: Any) -> Any:
        """It as a value of this type; until the next one comes.

        Raises:
            OddMessageError: It is something else.
        """
        return unpacked(self._content, self._beside, kind)


class Wire:
    """A connection to one other process; one thread sends while another may receive.

    Args:
        connected: Socket to that process.
        session: Agreed upon in the handshake; None for a process of this machine that is
            known otherwise.
    """

    def __init__(self, connected: socket.socket, session: Session | None = None) -> None:
        self._socket = connected
        self.peer = session.peer if session is not None else ("", 0)
        self._channel: Channel = Plain(connected)
        if connected.family != socket.AF_UNIX:
            if session is not None and session.sending and session.receiving:
                self._channel = Sealed(connected, session.sending, session.receiving)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A machine that is gone says nothing more; the system finds that out.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE.items():
                connected.setsockopt(socket.IPPROTO_TCP, option, value)
        self._reader = Reader(self._channel)

    @property
    def is_local(self) -> bool:
        """Whether memory can be shared over it."""
        return self._socket.family == socket.AF_UNIX

    def fileno(self) -> int:
        """For `select`; -1 once it is closed."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Sends a message.

        Raises:
            OSError: The other end is gone.
        """
        content, arrays = packed(message)
        lengths = struct.pack(f"<{len(arrays)}Q", *(one.nbytes for one in arrays))
        head = _HEAD.pack(_MARK, len(arrays), len(content))
        self._channel.send_all([memoryview(head + lengths + content), *arrays])

    def receive(self, into: Any = None) -> Message:
        """Waits for a message.

        Args:
            into: Vector that takes the first array that is as long, instead of new memory.

        Raises:
            EOFError: The other end is gone.
            OSError: Likewise, or it has said something odd.
        """
        mark, count, length = _HEAD.unpack(self._reader.next(_HEAD.size))
        if mark != _MARK:
            raise OddMessageError("this is no message")
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
            raise OddMessageError(f"a message is too long ({error})") from error
        return Message(content, arrays)

    def send_descriptor(self, descriptor: int) -> None:
        """Gives the other end, on this machine, a file; returns when it takes it."""
        self._reader.next(1)
        socket.send_fds(self._socket, [b"f"], [descriptor])

    def receive_descriptor(self) -> int:
        """Takes what `send_descriptor` gives."""
        # It must not come with other bytes, which would be read without it.
        self._socket.sendall(b"f")
        content, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not content or not descriptors:
            raise EOFError
        return descriptors[0]

    def close(self) -> None:
        """Ends it at once, also for a thread that waits for a message; may be called twice."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@dataclass(eq=False)
class _Stranger:
    """Somebody at a door who has not proved yet that he belongs there.

    Attributes:
        connected: To him.
        talk: With him.
        wanted: Bytes that he is to say next.
        deadline: When he has to have said all.
        heard: Those that he has said.
    """

    connected: socket.socket
    talk: Talk
    wanted: int
    deadline: float
    heard: bytes = b""


class Door:
    """Where others connect; one thread lets them in, however many knock.

    Args:
        address: Where; port 0 for one that is free.
        own: The part whose door it is.
        roles: Roles of those who may come in.
        on_wire: Called with each new wire, in a thread of its own; what it raises ends the wire.

    Attributes:
        address: By which others find it.
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
            # At this address alone, not at all interfaces of the machine.
            self._socket = socket.create_server(address, family=family, backlog=128)
            self.address = address[0], self._socket.getsockname()[1]
        self._socket.setblocking(False)
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._socket, selectors.EVENT_READ)
        self._is_closed = False
        self._strangers: dict[socket.socket, _Stranger] = {}
        self._most = _MOST_STRANGERS
        self._short_until = 0.0
        self._turned_away = 0
        self._silent_until = 0.0
        self._thread = threading.Thread(target=self._serve, name="door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Lets nobody in any more."""
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()

    def _serve(self) -> None:
        with self._socket, self._ready:
            while not self._is_closed:
                for key, _ in self._ready.select(1.0 if self._strangers else None):
                    stranger = self._strangers.get(key.fileobj)  # type: ignore[call-overload]
                    if key.fileobj is self._socket:
                        self._answer()
                    elif stranger is not None:
                        self._listen_to(stranger)
                now = time.monotonic()
                for one in [one for one in self._strangers.values() if one.deadline < now]:
                    self._show_out(one)
            for one in list(self._strangers.values()):
                self._show_out(one)

    def _answer(self) -> None:
        """Lets somebody into the line."""
        try:
            connected, _ = self._socket.accept()
            connected.setblocking(False)
            self._ready.register(connected, selectors.EVENT_READ)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in _NO_ROOM:
                # More than one is to be free, for whatever else needs it.
                self._most = max(1, len(self._strangers) // 2)
                self._make_room(len(self._strangers) // 2, str(error.strerror))
                self._short_until = time.monotonic() + _SHORTAGE_SECONDS
            elif not self._is_closed:  # he has gone again
                time.sleep(_PACE_SECONDS)
            return
        talk = welcoming(self._own, self._roles, self.address)
        _, wanted = next(talk)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        self._strangers[connected] = _Stranger(connected, talk, wanted, deadline)
        if time.monotonic() > self._short_until:
            self._most = _MOST_STRANGERS
        if len(self._strangers) > self._most:
            self._make_room(self._most, f"{self._most} wait there")

    def _make_room(self, most: int, why: str) -> None:
        """Shows out those who came first, until there are so many."""
        first = list(self._strangers.values())[: len(self._strangers) - most]
        for one in first:
            self._show_out(one)
        self._turned_away += max(1, len(first))
        if time.monotonic() > self._silent_until:
            self._silent_until = time.monotonic() + _QUIET_SECONDS
            _LOG.warning(
                "many knock at %s and do not say who they are (%s; %d turned away so far): who"
                " belongs to this cluster may have to wait; keep others away from this address",
                *(_text(self.address), why, self._turned_away),
            )
        # Who is honest has said all within this time, for each of the others in the line.
        time.sleep(_PACE_SECONDS if first else _PAUSE_SECONDS)

    def _listen_to(self, stranger: _Stranger) -> None:
        try:
            heard = stranger.connected.recv(stranger.wanted - len(stranger.heard))
            stranger.heard += heard
            if len(stranger.heard) < stranger.wanted:
                if not heard:
                    raise EOFError
                return
            said, stranger.heard = stranger.heard, b""
            answer, stranger.wanted = stranger.talk.send(said)
            stranger.connected.sendall(answer)  # far less than the system takes at once
        except StopIteration as end:
            self._forget(stranger)
            guest = stranger.connected, end.value
            try:
                threading.Thread(target=self._welcome, args=guest, daemon=True).start()
            except RuntimeError:  # there are too many
                stranger.connected.close()
        except Exception as error:  # whatever he says: others wait behind him
            _LOG.debug("%s: a stranger is shown out (%r)", _text(self.address), error)
            self._show_out(stranger)

    def _forget(self, stranger: _Stranger) -> None:
        self._ready.unregister(stranger.connected)
        del self._strangers[stranger.connected]

    def _show_out(self, stranger: _Stranger) -> None:
        self._forget(stranger)
        stranger.connected.close()

    def _welcome(self, connected: socket.socket, session: Session) -> None:
        connected.setblocking(True)
        try:
            connected.sendall(WELCOME)
            wire = Wire(connected, session)
        except OSError:
            connected.close()
            return
        try:
            self._on_wire(wire)
        except (OSError, EOFError) as error:
            if isinstance(error, OddMessageError):
                who = (_text(self.address), *session.peer)
                _LOG.warning("%s: %s %d is shown out: %s", *who, error)
            wire.close()
        except BaseException:
            # Or whoever is at the other end would wait for ever.
            wire.close()
            raise


def dial(address: Address, role: str, own: Identity) -> Wire:
    """Connects to a door.

    Args:
        address: Address of the door.
        role: Role of the part whose door it is.
        own: The part that dials.

    Raises:
        OSError: Nobody is there, or it is somebody else.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        connected = _connected(address)
        try:
            session = _talked(connected, dialing(own, role, address), deadline)
            connected.settimeout(None)
            return Wire(connected, session)
        except StrangerError as error:
            connected.close()
            raise ConnectionRefusedError(
                f"{_text(address)} does not know the cluster's secret, or is no {role} of it"
            ) from error
        except (EOFError, ConnectionResetError, BrokenPipeError) as error:
            # Many may have been at the door.
            connected.close()
            if time.monotonic() > deadline:
                raise ConnectionRefusedError(
                    f"{_text(address)} lets nobody in, or no {own.part[0]}"
                ) from error
            time.sleep(_PAUSE_SECONDS)
        except BaseException:
            connected.close()
            raise


def _text(address: Address) -> str:
    return address if isinstance(address, str) else "{}:{}".format(*address)


def _talked(connected: socket.socket, talk: Talk, deadline: float) -> Session:
    """Has the talk with a door."""
    said, wanted = next(talk)
    while True:
        connected.sendall(said)
        heard = b""
        while len(heard) < wanted:
            connected.settimeout(max(_PAUSE_SECONDS, deadline - time.monotonic()))
            part = connected.recv(wanted - len(heard))
            if not part:
                raise EOFError
            heard += part
        try:
            said, wanted = talk.send(heard)
        except StopIteration as end:
            session: Session = end.value
            return session


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
    """The same path within the hundred letters that a socket's may have, wherever TMPDIR is."""
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
