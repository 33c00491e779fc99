"""Watches one trial of a search: passes on what it reports, stops it when its result is known."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from syncswitch.searcher.loop.reporter import ReportedTrial, Reporter
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.trial import Evaluation, RunEvent
from syncswitch.trainers.trainer import Verdict


class TrialObserver:
    """Sends heartbeats, and decides whether to stop the trial.

    Attributes:
        is_cancelled: The run was stopped because nobody needs it any more.
    """

    def __init__(
        self,
        run: ReportedTrial,
        reporter: Reporter,
        heartbeat: Callable[[int, Evaluation | None], None],
        heartbeat_interval_seconds: float,
        *,
        stop: StopRule | None = None,
        inherited: Sequence[Evaluation] = (),
        switch_worker_step: int = 0,
        is_decided: Callable[[], bool] = lambda: False,
    ) -> None:
        """Takes what it needs.

        Args:
            run: For the reporter.
            reporter: Is told.
            heartbeat: Records the worker-step, and the last evaluation where there was one since.
            heartbeat_interval_seconds: How often.
            stop: Says when the run may end; None where it may not.
            inherited: Evaluations of the part before the run's own.
            switch_worker_step: Where the second protocol begins; 0 where it never does.
            is_decided: Says that the run is needed no longer.
        """
        self._run = run
        self._reporter = reporter
        self._heartbeat = heartbeat
        self._heartbeat_interval_seconds = heartbeat_interval_seconds
        self._next_heartbeat_at = self._next_look_at = time.monotonic() + heartbeat_interval_seconds
        self._stop = stop
        self._evaluations = list(inherited)
        self._switch_worker_step = switch_worker_step
        self._is_decided = is_decided
        self._untold: Evaluation | None = None
        self.is_cancelled = False

    def on_progress(self, worker_step: int) -> None:
        """Sends a heartbeat at most once per interval."""
        now = time.monotonic()
        if now >= self._next_heartbeat_at:
            self._next_heartbeat_at = now + self._heartbeat_interval_seconds
            untold, self._untold = self._untold, None
            self._heartbeat(worker_step, untold)
        self._reporter.on_progress(self._run, worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        """Ends the run where its accuracy is known, hopeless, or wanted no more."""
        self._untold = evaluation
        self._reporter.on_evaluation(self._run, evaluation)
        if self._is_wanted_no_more():
            self.is_cancelled = True
            return Verdict.STOP
        if self._stop is None:
            return Verdict.CONTINUE
        self._evaluations.append(evaluation)
        is_known = self._stop.knows(self._evaluations, self._switch_worker_step)
        if is_known or self._stop.is_hopeless(self._evaluations):
            return Verdict.STOP
        return Verdict.CONTINUE

    def _is_wanted_no_more(self) -> bool:
        """Looks as often as heartbeats are sent; a database that is busy is asked again later."""
        now = time.monotonic()
        if now < self._next_look_at:
            return False
        self._next_look_at = now + self._heartbeat_interval_seconds
        with contextlib.suppress(RetryableError):
            return self._is_decided()
        return False

    def on_event(self, event: RunEvent) -> None:
        """Passes it on."""
        self._reporter.on_event(self._run, event)
