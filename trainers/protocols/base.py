"""One interface for all protocols: who may start the next step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

__all__ = ["SyncProtocol"]


class SyncProtocol(ABC):
    """A pure, single-threaded state machine; cluster threads and simulated events drive it alike.

    A worker is *released* when it may start its next step. Every method that changes the state
    returns the workers that this releases, in ascending order.

    Attributes:
        name: What the command line calls the protocol.
        aggregates: Whether the pushes of a round become one update with their mean gradient;
            otherwise each push is applied at once.
    """

    name: ClassVar[str]
    aggregates: ClassVar[bool]

    def __init__(self, workers: Iterable[int]) -> None:
        self.active: set[int] = set(workers)
        if not self.active:
            raise ValueError("a protocol needs at least one worker")

    @abstractmethod
    def start(self) -> list[int]:
        """Releases the workers that may start at once; called once."""

    @abstractmethod
    def on_push(self, worker: int, now_seconds: float) -> list[int]:
        """Takes note that `worker` has finished its step."""

    @abstractmethod
    def add(self, worker: int) -> list[int]:
        """Lets `worker` take part from now on, new or back again."""

    @abstractmethod
    def remove(self, worker: int) -> list[int]:
        """Lets nobody wait for `worker` any longer."""
