"""Asynchronous parallel: no worker waits."""

from __future__ import annotations

from syncswitch.trainers.protocols.base import NOBODY, Exchange, Release, SyncProtocol


class ASP(SyncProtocol):
    """Releases a worker as soon as its own push is applied."""

    name = "asp"
    usage = "asp"
    exchange = Exchange.PUSH

    def on_push(self, worker: int, now_seconds: float) -> Release:
        return Release((worker,)) if worker in self.active else NOBODY

    def add(self, worker: int) -> Release:
        if worker in self.active:
            return NOBODY
        self.active.add(worker)
        return Release((worker,))

    def remove(self, worker: int) -> Release:
        self.active.discard(worker)
        return NOBODY
