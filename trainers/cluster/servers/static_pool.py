"""A pool of servers that a platform starts, and restarts at the same addresses."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from typing_extensions import override

from syncswitch.storage.errors import FatalError, RetryableError
from syncswitch.trainers.cluster.servers.pool import Server, ServerPool, ServerState, listens
from syncswitch.trainers.cluster.servers.tf_config import host_and_port

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.2
_SLOW_SECONDS = 5.0
_MOST_PROBES = 16


class StaticPool(ServerPool):
    """Starts and kills nothing: it only watches and waits.

    Args:
        addresses: Of the cluster, by job.
        limit_seconds: How long a server may take until it listens, first or again.
        say: Told once which servers are waited for, where that takes longer than some seconds.
    """

    def __init__(
        self,
        addresses: Mapping[str, Sequence[str]],
        limit_seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self._places = {
            (job, task): address
            for job in ("ps", "worker")
            for task, address in enumerate(addresses[job])
        }
        self._limit_seconds = limit_seconds
        self._say = say
        self._lock = threading.Lock()
        self._generations = dict.fromkeys(self._places, 0)
        # Seen dead, and not seen since.
        self._away: set[Server] = set()

    @override
    def await_all(self) -> None:
        self._await(list(self._places))

    @override
    def states(self) -> dict[Server, ServerState]:
        # One that is back again counts as another.
        living = self._living(self._places)
        with self._lock:
            self._note(living)
            return {
                server: ServerState(server in living, False, self._generations[server])
                for server in self._places
            }

    def renew(self, servers: Iterable[Server]) -> None:
        """Returns when these servers listen; each is taken for a new one.

        A server that has died may be back already, so that nobody has seen it dead.
        """
        servers = list(servers)
        self._await(servers)
        with self._lock:
            for server in servers:
                self._away.discard(server)
                self._generations[server] += 1

    def renew_dead(self) -> bool:
        """Whether servers that were dead are there again."""
        living = self._living(self._places)
        with self._lock:
            return self._note(living)

    def signal(self, server: Server, number: int) -> None:
        """Only says that the server does not answer: its platform has to end it."""
        _LOG.warning(
            "%s does not answer; it can only be ended, and started again, by whoever started it",
            self._name(server),
        )

    def delay(self, worker: int, seconds: float) -> None:
        """Is refused before a run begins."""
        raise FatalError("there is no proxy before the servers in TF_CONFIG")

    def _await(self, servers: Sequence[Server]) -> None:
        start = time.monotonic()
        has_said = False
        while missing := [one for one in servers if one not in self._living(servers)]:
            waited_seconds = time.monotonic() - start
            names = ", ".join(map(self._name, missing))
            if waited_seconds > self._limit_seconds:
                raise RetryableError(
                    f"{names} in TF_CONFIG did not answer within {self._limit_seconds:g} s; look"
                    " whether it was started and can be reached, or give it more time with"
                    " --cluster-timeout"
                )
            if waited_seconds > _SLOW_SECONDS and not has_said:
                has_said = True
                self._say(f"waiting for {names}")
            time.sleep(_PAUSE_SECONDS)

    def _living(self, servers: Iterable[Server]) -> set[Server]:
        servers = list(servers)
        places = [host_and_port(self._places[server]) for server in servers]
        if not servers:
            return set()
        # Each probe of a machine that is not there takes a second.
        with ThreadPoolExecutor(min(len(servers), _MOST_PROBES)) as pool:
            found = pool.map(lambda place: listens(*place), places)
            return {server for server, is_there in zip(servers, found, strict=True) if is_there}

    def _note(self, living: set[Server]) -> bool:
        returned = self._away & living
        for server in returned:
            self._generations[server] += 1
        self._away = set(self._places) - living
        return bool(returned)

    def _name(self, server: Server) -> str:
        job, task = server
        name = f"worker {task}" if job == "worker" else "the parameter server"
        return f"{name} at {self._places[server]}"
