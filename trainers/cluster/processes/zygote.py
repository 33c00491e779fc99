"""The zygote: a process that has imported TensorFlow and forks others from itself.

    python -m syncswitch.trainers.cluster.processes.zygote SOCKET_FD PARENT_PROCESS_ID

Importing TensorFlow anew would take each process half a minute on a busy machine; a fork takes a
tenth of a second. The zygote has one thread and never starts TensorFlow's runtime, so that it can
fork at any time. It serves all clusters of the process that started it; the kernel ends it with
that process, and its children with it. Messages are pickled, over pairs of sockets that only
children inherit.
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
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NoReturn

from syncswitch.storage.errors import RetryableError
from syncswitch.trainers.cluster.exchange.remote import LostError
from syncswitch.trainers.cluster.members.engine import Condition, Life, condition_of
from syncswitch.trainers.parent import die_with_parent

_OUTPUTS = (1, 2)


@dataclass(frozen=True)
class ForkRequest:
    """A request to fork a process.

    Attributes:
        target: The function to run, `module:function`, called with `argument` and connections.
        argument: The argument, which can be pickled.
        log: The file for what it prints.
        environment: Its whole environment.
        folder: Its working directory.
        path: Its `sys.path`.
        has_connections: Whether a socket follows. The target is called with a connection over this
            socket, and a second one for a `Zygote` whose children end with it.
    """

    target: str
    argument: Any
    log: str
    environment: Mapping[str, str]
    folder: str
    path: tuple[str, ...]
    has_connections: bool


class Zygote:
    """The zygote as other processes see it; any thread may call it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asking = threading.Lock()

    def fork(
        self,
        target: str,
        argument: Any,
        log: str,
        environment: Mapping[str, str],
        *,
        connection: socket.socket | None = None,
    ) -> int:
        """Forks a process.

        `environment` changes that of this process; for the rest see `ForkRequest`. Returns the
        process ID.

        Raises:
            LostError: The zygote is gone; so are the methods below.
        """
        request = ForkRequest(
            target,
            argument,
            log,
            {**os.environ, **environment},
            os.getcwd(),
            tuple(sys.path),
            connection is not None,
        )
        process_id: int = self._asked("fork", request, given=connection)
        return process_id

    def condition(self, process_id: int) -> Condition:
        """Returns the condition of a process that was forked with this object."""
        found: Condition = self._asked("condition", process_id)
        return found

    def signal(self, process_id: int, number: int) -> None:
        """Sends a signal to such a process, if it runs; after a SIGKILL it is dead."""
        self._asked("signal", process_id, number)

    @property
    def is_alive(self) -> bool:
        """Whether it answers."""
        try:
            self.condition(0)
        except LostError:
            return False
        return True

    def _asked(self, method: str, *arguments: Any, given: socket.socket | None = None) -> Any:
        with self._asking:
            try:
                self._connection.send((method, arguments))
                if given is not None:
                    send_handle(self._connection, given.fileno(), None)
                return self._connection.recv()
            except (OSError, EOFError) as error:
                self._connection.close()
                raise LostError("the process that starts others is gone") from error


def shared_zygote() -> Zygote:
    """Returns the zygote of this process; starts one if it has none that answers."""
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
        # The kernel ends it with the thread that starts it.
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            # Ctrl-C must not reach it.
            start_new_session=True,
        )

    _lasting = ThreadPoolExecutor(1, thread_name_prefix="zygote")
    _lasting.submit(start).result()
    _shared["thread"] = _lasting
    theirs.close()
    zygote = Zygote(Connection(ours.detach()))
    if not zygote.is_alive:
        raise RetryableError("no process that starts others can be started; look at its messages")
    return zygote


def main() -> None:
    """Runs the process."""
    descriptor, parent = map(int, sys.argv[1:])
    die_with_parent(parent)
    # Imported once, for all that are forked.
    from syncswitch.trainers.cluster.chief import trainer  # noqa: F401
    from syncswitch.trainers.cluster.exchange import parts, worker  # noqa: F401
    from syncswitch.trainers.cluster.members import connected  # noqa: F401

    _Family(Connection(descriptor)).serve()


class _Family:
    """The processes that the zygote has forked, by the connection over which it was asked."""

    def __init__(self, owner: Connection) -> None:
        self._owner = owner
        self._children: dict[Connection, dict[int, int | None]] = {owner: {}}

    def serve(self) -> None:
        while True:
            for asker in wait(list(self._children)):
                assert isinstance(asker, Connection)
                try:
                    self._answer(asker)
                except (OSError, EOFError):
                    if asker is self._owner:
                        return
                    self._end(asker)

    def _answer(self, asker: Connection) -> None:
        method, arguments = asker.recv()
        answers: Mapping[str, Callable[..., Any]] = {
            "fork": self._fork,
            "condition": self._condition,
            "signal": self._signal,
        }
        asker.send(answers[method](asker, *arguments))

    def _fork(self, asker: Connection, request: ForkRequest) -> int:
        given: list[Connection] = []
        family = dict(self._children)
        if request.has_connections:
            ours, theirs = Pipe()
            family[ours] = {}
            given = [Connection(recv_handle(asker)), theirs]
        parent_id = os.getpid()
        process_id = os.fork()
        if not process_id:
            for one in family:
                one.close()
            _be(request, given, parent_id)
        for one in given:
            one.close()
        self._children = family
        self._children[asker][process_id] = None
        return process_id

    def _condition(self, asker: Connection, process_id: int) -> Condition:
        status = self._status(asker, process_id)
        code = None if status is None else os.waitstatus_to_exitcode(status)
        found = condition_of(process_id, code)
        if code is None and found.life is Life.DEAD:
            # It is ending; wait until all of its threads have ended.
            self._children[asker][process_id] = os.waitpid(process_id, 0)[1]
            return self._condition(asker, process_id)
        return found

    def _signal(self, asker: Connection, process_id: int, number: int) -> None:
        if process_id not in self._children[asker] or self._status(asker, process_id) is not None:
            return
        os.kill(process_id, number)
        if number == signal.SIGKILL:
            self._children[asker][process_id] = os.waitpid(process_id, 0)[1]

    def _status(self, asker: Connection, process_id: int) -> int | None:
        """Returns the exit status of a process; None while it runs."""
        children = self._children[asker]
        if process_id not in children:
            return 0
        if children[process_id] is None:
            ended, status = os.waitpid(process_id, os.WNOHANG)
            if ended:
                children[process_id] = status
        return children[process_id]

    def _end(self, asker: Connection) -> None:
        """Ends the processes that were forked for one that is gone."""
        for process_id in list(self._children[asker]):
            self._signal(asker, process_id, signal.SIGKILL)
        del self._children[asker]
        asker.close()


def _be(request: ForkRequest, given: list[Connection], parent_id: int) -> NoReturn:
    """Becomes the requested process."""
    status = 1
    try:
        die_with_parent(parent_id)
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.folder)
        sys.path[:] = request.path
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for output in _OUTPUTS:
            os.dup2(log, output)
        module, _, name = request.target.partition(":")
        getattr(importlib.import_module(module), name)(request.argument, *given)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):  # the disk may be full
            sys.stdout.flush()
            sys.stderr.flush()
        # Not sys.exit: the exit handlers of the parent must not run here.
        os._exit(status)


if __name__ == "__main__":
    main()
