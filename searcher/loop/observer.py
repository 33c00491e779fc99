"""Watches one trial of a search: passes on what it reports, stops it when its result is known."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from syncswitch.searcher.loop.reporter import ReportedTrial, Reporter
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.trial import Evaluation, RunEvent
from syncswitch.trainers.run.guard import Guard
from syncswitch.trainers.trainer import Verdict


@dataclass
class TrialObserver:
    """Sends heartbeats, and decides whether to stop the trial.

    Attributes:
        trial: For the reporter.
        reporter: Is told.
        heartbeat: Records the worker-step, and the last evaluation where there was one since.
        heartbeat_interval_seconds: How often.
        stop: Says when the trial may end; None where it may not.
        inherited: Evaluations of the part before the trial's own.
        switch_worker_step: Where the second protocol begins; 0 where it never does.
        guard: Says that the trial fails; None where nobody asks.
        look: Is given all evaluations after each.
        is_decided: Says that the trial is needed no longer.
        is_cancelled: It was stopped because nobody needs it any more.
        alarm: It was stopped because it fails; None where it was not.
    """

    trial: ReportedTrial
    reporter: Reporter
    heartbeat: Callable[[int, Evaluation | None], None]
    heartbeat_interval_seconds: float
    stop: StopRule | None = None
    inherited: Sequence[Evaluation] = ()
    switch_worker_step: int = 0
    guard: Guard | None = None
    look: Callable[[Sequence[Evaluation]], None] = lambda _: None
    is_decided: Callable[[], bool] = lambda: False
    is_cancelled: bool = False
    alarm: RunEvent | None = None

    def __post_init__(self) -> None:
        self._next_heartbeat_at = time.monotonic() + self.heartbeat_interval_seconds
        self._next_look_at = self._next_heartbeat_at
        self._evaluations = list(self.inherited)
        self._untold: Evaluation | None = None

    def on_progress(self, worker_step: int) -> None:
        """Sends a heartbeat at most once per interval."""
        now = time.monotonic()
        if now >= self._next_heartbeat_at:
            self._next_heartbeat_at = now + self.heartbeat_interval_seconds
            untold, self._untold = self._untold, None
            self.heartbeat(worker_step, untold)
        self.reporter.on_progress(self.trial, worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        """Ends the run where its accuracy is known, hopeless, failing, or wanted no more."""
        self._untold = evaluation
        self.reporter.on_evaluation(self.trial, evaluation)
        if self._is_wanted_no_more():
            self.is_cancelled = True
            return Verdict.STOP
        self._evaluations.append(evaluation)
        self.look(self._evaluations)
        return Verdict.STOP if self._is_known() or self._fails(evaluation) else Verdict.CONTINUE

    def _is_known(self) -> bool:
        return self.stop is not None and (
            self.stop.knows(self._evaluations, self.switch_worker_step)
            or self.stop.is_hopeless(self._evaluations)
        )

    def _fails(self, newest: Evaluation) -> bool:
        """Before its end alone: what it ends with is its result."""
        if self.guard is None or newest.worker_step >= self.trial.total_worker_steps:
            return False
        reason = self.guard.alarm(self._evaluations, self.switch_worker_step)
        if reason is None:
            return False
        self.alarm = RunEvent("alarmed", newest.worker_step, newest.elapsed_seconds, reason)
        self.on_event(self.alarm)
        return True

    def _is_wanted_no_more(self) -> bool:
        """Looks as often as heartbeats are sent; a database that is busy is asked again later."""
        now = time.monotonic()
        if now < self._next_look_at:
            return False
        self._next_look_at = now + self.heartbeat_interval_seconds
        with contextlib.suppress(RetryableError):
            return self.is_decided()
        return False

    def on_event(self, event: RunEvent) -> None:
        """Passes it on."""
        self.reporter.on_event(self.trial, event)
