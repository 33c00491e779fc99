"""Carries out injected stragglers and failures on a real cluster."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from syncswitch.storage.errors import SyncSwitchError
from syncswitch.trainers.cluster.servers.launchers import Launcher, WorkerLostError
from syncswitch.trainers.faults.active import ActiveInjections, Started
from syncswitch.trainers.faults.grammar import Injection

_LOG = logging.getLogger(__name__)


class Note(Protocol):
    """Adds an event to the log of the run."""

    def __call__(
        self, kind: str, reason: str, worker: int | None = None, seconds: float | None = None
    ) -> None:
        """The fields are those of `RunEvent`."""


class FaultInjector:
    """The injections of one run; those of a run without any cost nothing."""

    def __init__(self, active: ActiveInjections, launcher: Launcher) -> None:
        self._active = active
        self._launcher = launcher
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
            if isinstance(change, Started):
                note("injected", injection.text, injection.worker)
            self._act(injection, is_start=isinstance(change, Started))

    def end(self) -> None:
        """Ends what is still going on: the next run on this cluster has nothing to do with it."""
        with self._lock:
            changes = self._active.end()
        for change in changes:
            try:
                self._act(change.injection, is_start=False)
            except SyncSwitchError as error:
                # What the run has measured stands.
                _LOG.warning("cannot end %s: %s", change.injection.text, error)

    @property
    def holds_up(self) -> bool:
        """Whether a worker will be held up in its own thread at any time of the run."""
        return self._active.has_threads

    def hold_up_of(self, worker: int) -> Callable[[float], None] | None:
        """Delays the step of a straggler; None for a worker that is none now."""
        if self._active.delay_seconds(worker) or self._active.slowdown(worker) != 1.0:
            return partial(self._hold_up, worker)
        return None

    def maybe_lose(self, worker: int, *, is_done: bool) -> None:
        """Loses a worker that has no process of its own, when it is due; called in its thread.

        Turn by turn it dies before its step, and after, when nobody knows that it was done.
        """
        if self._doomed.get(worker) is is_done:
            del self._doomed[worker]
            raise WorkerLostError("it was told to end")

    def _hold_up(self, worker: int, busy_seconds: float) -> None:
        delay_seconds = self._active.delay_seconds(worker)
        delay_seconds += (self._active.slowdown(worker) - 1.0) * busy_seconds
        if delay_seconds > 0:
            time.sleep(delay_seconds)

    def _act(self, injection: Injection, *, is_start: bool) -> None:
        worker = injection.worker
        if injection.kind == "straggler":
            assert worker is not None
            if injection.by == "proxy":
                self._launcher.delay(worker, self._active.message_delay_seconds(worker))
        elif is_start:
            self._strike(injection)

    def _strike(self, injection: Injection) -> None:
        if injection.role == "chief":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._launcher.has_servers:
            number = signal.SIGSTOP if injection.kind == "hang" else signal.SIGKILL
            self._launcher.signal(injection.worker, number)
        elif injection.worker is not None:
            self._doomed[injection.worker] = bool(self._strikes % 2)
            self._strikes += 1
