"""The interface of server pools."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

_PROBE_SECONDS = 1.0

Server = tuple[str, int]
"""Job and number, such as `("worker", 2)`."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server as its pool knows it.

    Attributes:
        is_alive: Whether its process is there, running or stopped.
        is_stopped: Whether it is there and does nothing, by SIGSTOP.
        generation: How often it was replaced.
    """

    is_alive: bool
    is_stopped: bool
    generation: int


class ServerPool(Protocol):
    """The servers of one cluster; any thread may ask."""

    def await_all(self) -> None:
        """Returns when all servers listen."""

    def states(self) -> Mapping[Server, ServerState]:
        """All servers."""

    def renew(self, servers: Iterable[Server]) -> None:
        """Replaces these servers by new ones; returns when they listen."""

    def renew_dead(self) -> bool:
        """Replaces dead servers as far as that takes no waiting; whether there are new ones.

        Raises:
            RetryableError: A new one does not start.
        """

    def signal(self, server: Server, number: int) -> None:
        """Sends a signal to a server, if it is there; where that kills, returns when it is dead."""

    def delay(self, worker: int, seconds: float) -> None:
        """Delays what passes through the proxy of a worker, one way."""


def listens(host: str, port: int) -> bool:
    """Whether the port accepts connections."""
    with suppress(OSError), socket.create_connection((host, port), timeout=_PROBE_SECONDS):
        return True
    return False
