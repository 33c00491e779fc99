"""The fork server: a process that has imported TensorFlow and forks others from itself.

    python -m syncswitch.trainers.cluster.processes.fork_server SOCKET_FD PARENT_PROCESS_ID

Importing TensorFlow anew would take each process half a minute on a busy machine; a fork takes a
tenth of a second. The fork server has one thread and never starts TensorFlow's runtime, so that it
can fork at any time. It serves all clusters of the process that started it; the kernel ends it with
that process, and its children with it. Messages are pickled, over pairs of sockets that only
children inherit.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NamedTuple, NoReturn

from syncswitch.storage.errors import RetryableError
from syncswitch.trainers.cluster.members.launcher import ProcessState, ProcessStatus, status_of
from syncswitch.trainers.parent import die_with_parent


class ForkRequest(NamedTuple):
    """A request to fork a process; see `ForkServer.fork`.

    `call` is the pickled function and its argument, for the new process alone to unpickle.
    """

    call: bytes
    log: str
    environment: Mapping[str, str]
    folder: str
    path: list[str]
    has_connection: bool


class ForkServer:
    """The fork server as other processes see it; any thread may call it.

    All methods raise RetryableError if the fork server is gone.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asking = threading.Lock()

    def fork(
        self,
        target: Callable[..., None],
        argument: Any,
        log: str,
        environment: Mapping[str, str],
        *,
        connection: socket.socket | None = None,
    ) -> int:
        """Forks a process that calls a function of a module; returns its process ID.

        The process has the environment, working directory and path of this one, with the changes in
        `environment`, and prints to the file `log`. If there is a `connection`, it is the second
        argument, and `shared_fork_server` there is one whose children end with it.
        """
        has_connection = connection is not None
        call, whole = pickle.dumps((target, argument)), {**os.environ, **environment}
        request = ForkRequest(call, log, whole, os.getcwd(), list(sys.path), has_connection)
        process_id: int = self._asked("fork", request, given=connection)
        return process_id

    def status(self, process_id: int) -> ProcessStatus:
        found: ProcessStatus = self._asked("status", process_id)
        return found

    def signal(self, process_id: int, number: int) -> None:
        """Sends a signal to such a process, if it runs; after a SIGKILL it is dead."""
        self._asked("signal", process_id, number)

    @property
    def is_alive(self) -> bool:
        with suppress(RetryableError):
            self.status(0)
            return True
        return False

    def _asked(self, method: str, *arguments: Any, given: socket.socket | None = None) -> Any:
        with self._asking:
            try:
                self._connection.send((method, arguments))
                if given is not None:
                    send_handle(self._connection, given.fileno(), None)
                return self._connection.recv()
            except (OSError, EOFError) as error:
                self._connection.close()
                raise RetryableError("the fork server has exited", code="cluster-lost") from error


def shared_fork_server() -> ForkServer:
    """Returns the fork server of this process; starts one if it has none that answers."""
    with _starting:
        if _shared.get("process") != os.getpid() or not _shared["fork_server"].is_alive:
            _shared.update(process=os.getpid(), fork_server=_start())
        fork_server: ForkServer = _shared["fork_server"]
        return fork_server


_starting = threading.Lock()
_shared: dict[str, Any] = {}


def _start() -> ForkServer:
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

    _lasting = ThreadPoolExecutor(1, thread_name_prefix="fork-server")
    _lasting.submit(start).result()
    _shared["thread"] = _lasting
    theirs.close()
    fork_server = ForkServer(Connection(ours.detach()))
    if not fork_server.is_alive:
        raise RetryableError("the fork server cannot start; see its messages", code="cluster-lost")
    return fork_server


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
    """The processes that the fork server has forked, by the connection over which it was asked.

    Of each it knows the exit code, None while it runs.
    """

    def __init__(self, owner: Connection) -> None:
        self._owner = owner
        self._children: dict[Connection, dict[int, int | None]] = {owner: {}}

    def serve(self) -> None:
        answers: Mapping[str, Callable[..., Any]] = {
            "fork": self._fork,
            "status": self._status,
            "signal": self._signal,
        }
        while True:
            for asker in wait(list(self._children)):
                assert isinstance(asker, Connection)
                try:
                    method, arguments = asker.recv()
                    asker.send(answers[method](asker, *arguments))
                except (OSError, EOFError):
                    if asker is self._owner:
                        return
                    # What was forked for one that is gone ends.
                    for process_id in self._children[asker]:
                        self._signal(asker, process_id, signal.SIGKILL)
                    del self._children[asker]
                    asker.close()

    def _fork(self, asker: Connection, request: ForkRequest) -> int:
        given: list[Connection] = []
        family = dict(self._children)
        if request.has_connection:
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

    def _status(self, asker: Connection, process_id: int) -> ProcessStatus:
        code = self._exit_code(asker, process_id)
        found = status_of(process_id, code)
        if code is None and found.state is ProcessState.DEAD:
            # It is ending; wait until all of its threads have ended.
            return status_of(process_id, self._exit_code(asker, process_id, 0))
        return found

    def _signal(self, asker: Connection, process_id: int, number: int) -> None:
        if self._exit_code(asker, process_id) is None:
            os.kill(process_id, number)
            if number == signal.SIGKILL:
                self._exit_code(asker, process_id, 0)

    def _exit_code(
        self, asker: Connection, process_id: int, options: int = os.WNOHANG
    ) -> int | None:
        children = self._children[asker]
        if children.get(process_id, 0) is None:
            ended, status = os.waitpid(process_id, options)
            if ended:
                children[process_id] = os.waitstatus_to_exitcode(status)
        return children.get(process_id, 0)


def _be(request: ForkRequest, given: list[Connection], parent_id: int) -> NoReturn:
    status = 1
    try:
        die_with_parent(parent_id)
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.folder)
        sys.path[:] = request.path
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if given:
            _shared.update(process=os.getpid(), fork_server=ForkServer(given.pop()))
        target, argument = pickle.loads(request.call)
        target(argument, *given)
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
    # What is forked has this module under its name, with the same `_shared`.
    from syncswitch.trainers.cluster.processes import fork_server

    fork_server.main()
