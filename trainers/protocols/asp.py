"""Asynchronous parallel: nobody waits."""

from __future__ import annotations

from syncswitch.trainers.protocols.base import NOBODY, Exchange, Release, SyncProtocol


class ASP(SyncProtocol):
    """A worker is released as soon as its own push is applied."""

    name = "asp"
    usage = "asp"
    exchange = Exchange.PUSH

    def on_push(self, worker: int, now_seconds: float) -> Release:
        """Releases `worker`, and only it."""
        return Release((worker,)) if worker in self.active else NOBODY

    def add(self, worker: int) -> Release:
        """Releases `worker` unless it is at work already."""
        if worker in self.active:
            return NOBODY
        self.active.add(worker)
        return Release((worker,))

    def remove(self, worker: int) -> Release:
        """Releases nobody: nobody waits."""
        self.active.discard(worker)
        return NOBODY
