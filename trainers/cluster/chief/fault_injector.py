"""Carries out injected stragglers and failures on a real cluster."""

from __future__ import annotations

import os
import signal
import threading
from typing import Protocol

from syncswitch.trainers.cluster.exchange.plans import SERVER, WORKER, Hold
from syncswitch.trainers.cluster.members.cluster import Cluster, WorkerLostError
from syncswitch.trainers.faults.active import ActiveInjections
from syncswitch.trainers.faults.injections import Injection


class Note(Protocol):
    """Adds an event to the log of the run."""

    def __call__(
        self, kind: str, reason: str, worker: int | None = None, seconds: float | None = None
    ) -> None:
        """The fields are those of `RunEvent`."""


class FaultInjector:
    """The injections of one run; those of a run without any cost nothing."""

    def __init__(self, active: ActiveInjections, cluster: Cluster) -> None:
        self._active = active
        self._cluster = cluster
        self._lock = threading.Lock()
        # Whether the worker dies after its step.
        self._doomed: dict[int, bool] = {}
        self._strikes = 0

    def advance(self, done: int, now_seconds: float, note: Note) -> None:
        """Begins and ends what is due; called again and again."""
        with self._lock:
            changes = self._active.advance(done, now_seconds)
        for change in changes:
            injection = change.injection
            if change.is_start:
                note("injected", injection.text, injection.worker)
                if injection.kind != "straggler":
                    self._strike(injection)

    def hold_of(self, worker: int) -> Hold:
        """How a worker is slowed now."""
        active = self._active
        return Hold(active.delay_seconds(worker), active.slowdown(worker))

    def maybe_lose(self, worker: int, *, is_done: bool) -> None:
        """Loses a worker that has no process of its own, when it is due; called in its thread.

        Turn by turn it dies before its step, and after, when nobody knows that it was done.
        """
        if self._doomed.get(worker) is is_done:
            del self._doomed[worker]
            raise WorkerLostError("it was told to end")

    def _strike(self, injection: Injection) -> None:
        if injection.role == "chief":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._cluster.has_processes:
            number = signal.SIGSTOP if injection.kind == "hang" else signal.SIGKILL
            role = SERVER if injection.worker is None else WORKER
            self._cluster.signal((role, injection.number), number)
        elif injection.worker is not None:
            self._doomed[injection.worker] = bool(self._strikes % 2)
            self._strikes += 1
