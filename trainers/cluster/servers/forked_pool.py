"""A pool of forked servers: forks them, replaces them, disturbs them on request.

The zygote is the pool. The chief, which cannot fork servers itself, asks it over a connection.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import psutil
from typing_extensions import override

from syncswitch.storage.errors import RetryableError, SyncSwitchError, one_line
from syncswitch.trainers.cluster.servers.network import die_with_parent
from syncswitch.trainers.cluster.servers.pool import Server, ServerPool, ServerState, listens
from syncswitch.trainers.faults.delaying_proxy import serve_proxy

_START_SECONDS = 30.0
# A fresh process imports TensorFlow, beside others that do.
_FRESH_START_SECONDS = 300.0
_PAUSE_SECONDS = 0.01


def fork(run: Callable[[], None]) -> int:
    """Runs a function in a child that dies with this process; returns the child's process ID."""
    process_id = os.fork()
    if process_id:
        return process_id
    status = 1
    try:
        die_with_parent()
        sys.stdin.close()
        run()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):  # or the child would go on as its parent
            sys.stderr.flush()
        # Not sys.exit: what the parent has registered to do at its exit is not the child's to do.
        os._exit(status)


class ForkedPool(ServerPool):
    """The servers of one cluster; a chief may call its public methods, except `start`.

    Args:
        ports: At which each server listens itself.
        serve: `(job, task)`: is that server, in a process of its own, until it is killed.
        proxies: Port that the others know, by worker, for those behind a delaying proxy.
        close_in_children: Files that only the chief and this process may hold.
        are_fresh: Whether `serve` imports TensorFlow first.

    Attributes:
        close_in_children: May be set anew when this process has closed some.
    """

    def __init__(
        self,
        ports: Mapping[Server, int],
        serve: Callable[[str, int], None],
        proxies: Mapping[int, int],
        close_in_children: Sequence[int],
        *,
        are_fresh: bool = False,
    ) -> None:
        self._start_seconds = _FRESH_START_SECONDS if are_fresh else _START_SECONDS
        self._ports = ports
        self._serve = serve
        self._proxies = proxies
        self.close_in_children = close_in_children
        self._process_ids: dict[Server, int] = {}
        self._generations = dict.fromkeys(ports, 0)
        self._proxy_control: int | None = None

    def start(self) -> None:
        """Starts servers and proxies."""
        for server in self._ports:
            self._fork(server)
        if self._proxies:
            self._start_proxies()

    @override
    def await_all(self) -> None:
        self._await(list(self._ports))

    @override
    def states(self) -> dict[Server, ServerState]:
        return {server: self._state(server) for server in self._ports}

    @override
    def renew(self, servers: Iterable[Server]) -> None:
        servers = list(servers)
        for server in servers:
            self._kill(server)
            self._generations[server] += 1
            self._fork(server)
        self._await(servers)

    @override
    def renew_dead(self) -> bool:
        dead = [server for server in self._ports if not self._is_alive(server)]
        self.renew(dead)
        return bool(dead)

    @override
    def signal(self, server: Server, number: int) -> None:
        if not self._is_alive(server):
            return
        if number == signal.SIGKILL:
            # A server that is about to die would still be taken for one that can be reached.
            self._kill(server)
        else:
            os.kill(self._process_ids[server], number)

    @override
    def delay(self, worker: int, seconds: float) -> None:
        assert self._proxy_control is not None
        number = list(self._proxies).index(worker)
        os.write(self._proxy_control, f"{number} {seconds}\n".encode())

    def close(self) -> None:
        """Kills all servers."""
        for server in self._ports:
            self._kill(server)

    def answer(self, connection: Connection) -> None:
        """Answers one request from the other end.

        Raises:
            EOFError: The other end is gone.
        """
        name, arguments = connection.recv()
        try:
            reply: Any = getattr(self, name)(*arguments)
        except SyncSwitchError as error:
            reply = error
        except Exception as error:
            reply = RetryableError(f"the pool of the servers failed with {one_line(error)}")
        connection.send(reply)

    def _await(self, servers: Sequence[Server]) -> None:
        deadline = time.monotonic() + self._start_seconds
        for server in servers:
            while not listens("127.0.0.1", self._ports[server]):
                if time.monotonic() > deadline or not self._is_alive(server):
                    raise RetryableError(f"server {server[0]} {server[1]} does not start")
                time.sleep(_PAUSE_SECONDS)

    def _fork(self, server: Server) -> None:
        def run() -> None:
            # Only the chief may hold these, or its end would not be seen at the other side.
            for descriptor in self.close_in_children:
                os.close(descriptor)
            self._serve(*server)

        self._process_ids[server] = fork(run)

    def _state(self, server: Server) -> ServerState:
        is_alive = self._is_alive(server)
        is_stopped = is_alive and (
            psutil.Process(self._process_ids[server]).status() == psutil.STATUS_STOPPED
        )
        return ServerState(is_alive, is_stopped, self._generations[server])

    def _is_alive(self, server: Server) -> bool:
        process_id = self._process_ids.get(server)
        if process_id is None:
            return False
        ended, status = os.waitpid(process_id, os.WNOHANG)
        if not ended:
            return True
        self._note_end(server, status)
        return False

    def _kill(self, server: Server) -> None:
        process_id = self._process_ids.get(server)
        if process_id is not None:
            os.kill(process_id, signal.SIGKILL)
            self._note_end(server, os.waitpid(process_id, 0)[1])

    def _note_end(self, server: Server, status: int) -> None:
        del self._process_ids[server]
        code = os.waitstatus_to_exitcode(status)
        with suppress(OSError):  # the disk may be full
            print(f"server {server[0]} {server[1]} ended with status {code}", file=sys.stderr)

    def _start_proxies(self) -> None:
        reader, self._proxy_control = os.pipe()
        control = self._proxy_control
        pairs = [(port, self._ports["worker", worker]) for worker, port in self._proxies.items()]

        def run() -> None:
            for descriptor in (*self.close_in_children, control):
                os.close(descriptor)
            serve_proxy(pairs, reader)

        fork(run)
        os.close(reader)


class ForkedPoolClient(ServerPool):
    """The chief's end of the connection to its pool; any thread may ask."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asking = threading.Lock()

    @override
    def await_all(self) -> None:
        self._ask("await_all")

    @override
    def states(self) -> dict[Server, ServerState]:
        states: dict[Server, ServerState] = self._ask("states")
        return states

    @override
    def renew(self, servers: Iterable[Server]) -> None:
        self._ask("renew", list(servers))

    @override
    def renew_dead(self) -> bool:
        return bool(self._ask("renew_dead"))

    @override
    def signal(self, server: Server, number: int) -> None:
        self._ask("signal", server, number)

    @override
    def delay(self, worker: int, seconds: float) -> None:
        self._ask("delay", worker, seconds)

    def _ask(self, name: str, *arguments: Any) -> Any:
        with self._asking:
            self._connection.send((name, arguments))
            reply = self._connection.recv()
        if isinstance(reply, SyncSwitchError):
            raise reply
        return reply
