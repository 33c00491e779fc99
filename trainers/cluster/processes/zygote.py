"""A process that has imported TensorFlow, and forks others from itself.

    python -m syncswitch.trainers.cluster.processes.zygote SOCKET_FD

A fresh import for each process would take half a minute on a busy machine; a fork takes a tenth of
a second. It has one thread and never starts TensorFlow's runtime, so that it can fork at any time.
One zygote serves all clusters of the process that has started it, and the kernel ends it with that
process, and its children with it.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, NoReturn

from syncswitch.storage.errors import RetryableError
from syncswitch.trainers.cluster.exchange.remote import LostError, Remote
from syncswitch.trainers.cluster.exchange.wire import Wire
from syncswitch.trainers.cluster.members.engine import Condition, Life
from syncswitch.trainers.cluster.processes.condition import condition_of
from syncswitch.trainers.parent import die_with_parent

_OUTPUTS = (1, 2)


@dataclass(frozen=True)
class Fork:
    """A process to be forked.

    Attributes:
        target: What it is: `module:function`, called with `argument` and its wires.
        argument: Can be pickled.
        log: File that takes what it prints.
        environment: All of it.
        folder: It works in.
        path: Where it imports from.
        has_wires: Whether a socket follows, for the target's first wire. By its second one it may
            fork others, which end with it.
    """

    target: str
    argument: Any
    log: str
    environment: Mapping[str, str]
    folder: str
    path: tuple[str, ...]
    has_wires: bool


class Zygote:
    """The process as others see it; any thread may ask."""

    def __init__(self, wire: Wire) -> None:
        self._remote = Remote(wire, "the process that starts others")

    def fork(
        self,
        target: str,
        argument: Any,
        log: str,
        environment: Mapping[str, str],
        *,
        wire: socket.socket | None = None,
    ) -> int:
        """Forks a process.

        Args:
            target: This and the next two: see `Fork`.
            argument: Of it.
            log: Of it.
            environment: Besides that of this process.
            wire: For a target that has wires.

        Returns:
            Its process ID.
        """
        request = Fork(
            target,
            argument,
            log,
            {**os.environ, **environment},
            os.getcwd(),
            tuple(sys.path),
            wire is not None,
        )
        descriptor = None if wire is None else wire.fileno()
        process_id: int = self._remote.call("fork", request, descriptor=descriptor)
        return process_id

    def condition(self, process_id: int) -> Condition:
        """What has become of a process that it has forked for this one."""
        found: Condition = self._remote.condition(process_id)
        return found

    def signal(self, process_id: int, number: int) -> None:
        """Sends a signal to such a process, if it is there; where that kills, it is dead then."""
        self._remote.signal(process_id, number)

    @property
    def is_alive(self) -> bool:
        """Whether it answers."""
        try:
            self.condition(0)
        except LostError:
            return False
        return True


def shared_zygote() -> Zygote:
    """The zygote of this process."""
    with _starting:
        if _shared.get("process") != os.getpid() or not _shared["zygote"].is_alive:
            _shared.update(process=os.getpid(), zygote=_start())
        zygote: Zygote = _shared["zygote"]
        return zygote


_starting = threading.Lock()
_shared: dict[str, Any] = {}


def _start() -> Zygote:
    ours, theirs = socket.socketpair()

    def start() -> None:
        # It lives as long as the thread that starts it.
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            # Ctrl-C is for this process alone.
            start_new_session=True,
        )

    _lasting = ThreadPoolExecutor(1, thread_name_prefix="zygote")
    _lasting.submit(start).result()
    _shared["thread"] = _lasting
    theirs.close()
    zygote = Zygote(Wire(ours))
    if not zygote.is_alive:
        raise RetryableError("no process that starts others can be started; look at its messages")
    return zygote


def main() -> None:
    """The process."""
    descriptor, parent = map(int, sys.argv[1:])
    die_with_parent()
    if os.getppid() != parent:
        return
    # What those who are forked need, so that each of them need not import it.
    from syncswitch.trainers.cluster.chief import trainer  # noqa: F401
    from syncswitch.trainers.cluster.exchange import gpu, parts  # noqa: F401
    from syncswitch.trainers.cluster.members import connected  # noqa: F401

    _Family(Wire(socket.socket(fileno=descriptor))).serve()


class _Family:
    """The processes that the zygote has forked, by whom it was asked."""

    def __init__(self, wire: Wire) -> None:
        self._owner = wire
        self._children: dict[Wire, dict[int, int | None]] = {wire: {}}

    def serve(self) -> None:
        while True:
            for wire in wait(list(self._children)):  # type: ignore[arg-type]  # has a fileno
                assert isinstance(wire, Wire)
                try:
                    self._answer(wire)
                except (OSError, EOFError):
                    if wire is self._owner:
                        return
                    self._end(wire)

    def _answer(self, wire: Wire) -> None:
        method, arguments = wire.receive()
        answers: Mapping[str, Callable[..., Any]] = {
            "fork": self._fork,
            "condition": self._condition,
            "signal": self._signal,
        }
        wire.send((None, answers[method](wire, *arguments)))

    def _fork(self, wire: Wire, request: Fork) -> int:
        wires: list[Wire] = []
        family = dict(self._children)
        if request.has_wires:
            ours, theirs = socket.socketpair()
            family[Wire(ours)] = {}
            wires = [Wire(socket.socket(fileno=wire.receive_descriptor())), Wire(theirs)]
        process_id = os.fork()
        if not process_id:
            for one in family:
                os.close(one.fileno())
            _be(request, wires)
        for one in wires:
            os.close(one.detach())
        self._children = family
        self._children[wire][process_id] = None
        return process_id

    def _condition(self, wire: Wire, process_id: int) -> Condition:
        status = self._status(wire, process_id)
        code = None if status is None else os.waitstatus_to_exitcode(status)
        found = condition_of(process_id, code)
        if code is None and found.life is Life.DEAD:
            # It has ended since: its parent has to wait for all of its threads to have done so.
            self._children[wire][process_id] = os.waitpid(process_id, 0)[1]
            return self._condition(wire, process_id)
        return found

    def _signal(self, wire: Wire, process_id: int, number: int) -> None:
        if process_id not in self._children[wire] or self._status(wire, process_id) is not None:
            return
        os.kill(process_id, number)
        if number == signal.SIGKILL:
            self._children[wire][process_id] = os.waitpid(process_id, 0)[1]

    def _status(self, wire: Wire, process_id: int) -> int | None:
        """How a process has ended; None while it has not."""
        children = self._children[wire]
        if process_id not in children:
            return 0
        if children[process_id] is None:
            ended, status = os.waitpid(process_id, os.WNOHANG)
            if ended:
                children[process_id] = status
        return children[process_id]

    def _end(self, wire: Wire) -> None:
        """Ends what was forked for a process that is gone."""
        for process_id in list(self._children[wire]):
            self._signal(wire, process_id, signal.SIGKILL)
        del self._children[wire]
        wire.close()


def _be(request: Fork, wires: list[Wire]) -> NoReturn:
    """Is the process that was asked for."""
    status = 1
    try:
        die_with_parent()
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.folder)
        sys.path[:] = request.path
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for output in _OUTPUTS:
            os.dup2(log, output)
        module, _, name = request.target.partition(":")
        getattr(importlib.import_module(module), name)(request.argument, *wires)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):  # the disk may be full
            sys.stdout.flush()
            sys.stderr.flush()
        # Not sys.exit: what the parent has registered to do at its exit is not the child's to do.
        os._exit(status)


if __name__ == "__main__":
    main()
