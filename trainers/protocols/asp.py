"""Asynchronous parallel: nobody waits."""

from __future__ import annotations

from syncswitch.trainers.protocols.base import SyncProtocol

__all__ = ["ASP"]


class ASP(SyncProtocol):
    """A worker is released as soon as its own push is applied."""

    name = "asp"
    aggregates = False

    def start(self) -> list[int]:
        """Releases all workers."""
        return sorted(self.active)

    def on_push(self, worker: int, now_seconds: float) -> list[int]:
        """Releases `worker`, and only it."""
        return [worker] if worker in self.active else []

    def add(self, worker: int) -> list[int]:
        """Releases `worker` unless it is at work already."""
        if worker in self.active:
            return []
        self.active.add(worker)
        return [worker]

    def remove(self, worker: int) -> list[int]:
        """Releases nobody: nobody waits."""
        self.active.discard(worker)
        return []
