"""Parameter server and worker as the chief sees them, here or elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from syncswitch.trainers.cluster.exchange.tasks import Push, Task
from syncswitch.trainers.model.layout import ModelState, Vector


class ServerHandle(Protocol):
    """A parameter server, here or elsewhere; see `ParameterServer`."""

    def load(self, state: ModelState) -> None:
        """See `ParameterServer`."""

    def mark(self) -> Sequence[int]:
        """See `ParameterServer`."""

    def marked(self) -> ModelState:
        """See `ParameterServer`."""

    def snapshot(self) -> tuple[Vector, Vector]:
        """See `ParameterServer`."""

    def apply_round(self, workers: Sequence[int], rate: float, momentum: float) -> int:
        """See `ParameterServer`."""

    def fence(self, worker: int) -> tuple[int, int]:
        """See `ParameterServer`."""


class WorkerHandle(Protocol):
    """A worker, here or elsewhere; see `Worker`."""

    def step(self, task: Task) -> Push:
        """See `Worker`."""

    def take(self, state: ModelState) -> None:
        """See `Worker`."""

    def reduce(self, position: int, peers: Sequence[Any]) -> None:
        """See `Worker`."""

    def gather(self, position: int, peers: Sequence[Any]) -> None:
        """See `Worker`."""

    def commit(self) -> None:
        """See `Worker`."""

    def fetch(self, what: str, start: int, stop: int) -> Vector:
        """See `Worker`."""
