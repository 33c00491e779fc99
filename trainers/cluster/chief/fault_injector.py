"""The fault injector: carries out injected stragglers and failures on a real cluster."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from syncswitch.trainers.cluster.exchange.plans import SERVER, WORKER, Hold
from syncswitch.trainers.cluster.members.cluster import Cluster, WorkerLostError
from syncswitch.trainers.faults.active import ActiveInjections
from syncswitch.trainers.faults.injections import Injection

Note = Callable[..., None]
"""`note(kind, reason, worker=None, seconds=None)` adds a `RunEvent` to the log of the run."""


class FaultInjector:
    """The injections of one run."""

    def __init__(self, active: ActiveInjections, cluster: Cluster) -> None:
        self._active = active
        self._cluster = cluster
        self._lock = threading.Lock()
        # For each worker that is to die, whether that is after its step or before.
        self._doomed: dict[int, bool] = {}
        self._strikes = 0

    def advance(self, done: int, now_seconds: float, note: Note) -> None:
        """Begins and ends injections that are due; called repeatedly."""
        with self._lock:
            changes = self._active.advance(done, now_seconds)
        for change in changes:
            injection = change.injection
            if change.is_start:
                note("injected", injection.text, injection.worker)
                if injection.kind != "straggler":
                    self._strike(injection)

    def hold_of(self, worker: int) -> Hold:
        """Returns how a worker is slowed down now."""
        active = self._active
        return Hold(active.delay_seconds(worker), active.slowdown(worker))

    def maybe_lose(self, worker: int, *, is_done: bool) -> None:
        """Raises WorkerLostError if a worker without a process is to die; called in its thread.

        Workers die alternately before their step and after it, when nobody knows that it was done.
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
