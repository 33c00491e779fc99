"""A fork of these tests that forks programs: they need not import TensorFlow first.

The import takes four seconds of a processor. The tests that are collected have made it already; the
fork is taken before one of them runs, as long as TensorFlow has no threads. So is the zygote of
this process, and that of each program.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple, NoReturn, cast

from syncswitch.trainers.cluster.processes import zygote
from syncswitch.trainers.parent import die_with_parent
from tests import warm_tensorflow


class Server:
    """The fork as this process sees it; any thread may ask."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._asking = threading.Lock()

    def start(
        self, target: Callable[..., None], *arguments: Any, descriptors: Iterable[int] = ()
    ) -> tuple[int, Connection]:
        """Starts a process.

        Args:
            target: It calls this with the arguments and then its own copies of the descriptors.
            arguments: Can be pickled.
            descriptors: Of open files.

        Returns:
            Its process ID, and where its exit code comes when it has ended.
        """
        ours, theirs = os.pipe()
        request = pickle.dumps((target, arguments))
        with self._asking:
            socket.send_fds(
                self._channel, [len(request).to_bytes(8, "big")], [theirs, *descriptors]
            )
            self._channel.sendall(request)
            os.close(theirs)
            process_id = int.from_bytes(_received(self._channel, 8), "big")
        return process_id, Connection(ours, writable=False)


def at_once(function: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
    """What a function gives for each of some arguments, each in a process of its own."""
    channels = []
    for argument in arguments:
        ours, theirs = Pipe(duplex=False)
        shared().start(_tell, function, argument, descriptors=[theirs.fileno()])
        theirs.close()
        channels.append(ours)
    return [channel.recv() for channel in channels]


def _tell(function: Callable[[Any], Any], argument: Any, descriptor: int) -> None:
    with Connection(descriptor, readable=False) as channel:
        channel.send(function(argument))


def fork_shared() -> None:
    """Forks the server of this process; it ends with it, and what it has started with it."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    if not os.fork():
        ours.close()
        _forget_pytest()
        _Forks(theirs, parent).serve()
    theirs.close()
    _shared.append(Server(ours))


def shared() -> Server:
    """The server of this process."""
    return _shared[0]


_shared: list[Server] = []


def fork_zygote() -> None:
    """Has the first zygote of this process be a fork of it."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    if not os.fork():
        ours.close()
        _forget_pytest()
        _be_zygote(theirs, parent)
    theirs.close()
    start = zygote._start

    def start_first() -> zygote.Zygote:
        zygote._start = start
        return zygote.Zygote(Connection(ours.detach()))

    zygote._start = start_first


def _be_zygote(channel: socket.socket, parent: int) -> NoReturn:
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() == parent:
            wait([channel])
            warm_tensorflow.prepare()
            zygote._Family(Connection(channel.detach())).serve()
    finally:
        os._exit(0)


def _forget_pytest() -> None:
    """Programs have the standard library as it is from the start."""
    faulthandler.disable()
    logging.root.handlers.clear()
    sys.unraisablehook = sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__
    for unheard in (DeprecationWarning, PendingDeprecationWarning):
        warnings.simplefilter("ignore", unheard)


class _Fork(NamedTuple):
    process_id: int
    status: Connection
    """Where its exit code goes."""


class _Forks:
    """The server's own side."""

    def __init__(self, channel: socket.socket, parent: int) -> None:
        self._channel = channel
        self._parent = parent
        self._running: dict[int, _Fork] = {}

    def serve(self) -> NoReturn:
        try:
            die_with_parent()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            with suppress(EOFError):
                while os.getppid() == self._parent:
                    # No handler of SIGCHLD: it may interrupt itself.
                    for ready in wait([self._channel, *self._running]):
                        if ready is self._channel:
                            self._answer()
                        else:
                            self._reap(cast(int, ready))
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            for fork in self._running.values():
                os.kill(fork.process_id, signal.SIGKILL)
            os._exit(0)

    def _answer(self) -> None:
        header, descriptors, _, _ = socket.recv_fds(self._channel, 8, 16)
        if not header:
            raise EOFError
        request = _received(self._channel, int.from_bytes(header, "big"))
        _import_libraries()
        process_id = os.fork()
        if not process_id:
            self._be(request, descriptors)
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        status = Connection(descriptors[0], readable=False)
        self._running[os.pidfd_open(process_id)] = _Fork(process_id, status)
        self._channel.sendall(process_id.to_bytes(8, "big"))

    def _reap(self, ended: int) -> None:
        fork = self._running.pop(ended)
        os.close(ended)
        _, code = os.waitpid(fork.process_id, 0)
        with fork.status, suppress(OSError):  # nobody may wait any more
            fork.status.send(os.waitstatus_to_exitcode(code))

    def _be(self, request: bytes, descriptors: list[int]) -> NoReturn:
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._channel.close()
            os.close(descriptors[0])
            for other, fork in self._running.items():
                os.close(other)
                fork.status.close()
            die_with_parent()
            target, arguments = pickle.loads(request)
            target(*arguments, *descriptors[1:])
            code = 0
        except SystemExit as ended:
            code = _exit_code(ended)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            threading._shutdown()  # type: ignore[attr-defined]
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _import_libraries() -> None:
    """Nobody looks for garbage in them, neither here nor in a fork: they stay."""
    if "tests.warm_libraries" not in sys.modules:
        gc.disable()
        import tests.warm_libraries  # noqa: F401

        gc.freeze()
        gc.enable()


def _exit_code(ended: SystemExit) -> int:
    """What Python makes of the argument of `sys.exit`."""
    if ended.code is None or isinstance(ended.code, int):
        return (ended.code or 0) & 0xFF
    print(ended.code, file=sys.stderr)
    return 1


def _received(channel: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (part := channel.recv(size - len(found))):
            raise EOFError
        found += part
    return found
