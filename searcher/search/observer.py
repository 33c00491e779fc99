"""The watch over one run of a search: its heartbeats, and whether it ends early."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from syncswitch.searcher.search.recorded import completed_runs, measured_band, sound_baseline
from syncswitch.searcher.search.reporter import ReportedTrial, Reporter
from syncswitch.searcher.search.study import SearchState, SearchStudy
from syncswitch.searcher.strategies.early_stopping import StopRule, may_stop
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.run.guard import EarlyAbort
from syncswitch.trainers.trainer import Observer, Verdict

_LEAST_TESTS = 5


@dataclass
class TrialObserver(Observer):
    """Sends the heartbeats of a run, and decides when it ends early.

    It goes by the search as it was when the run was planned: a search without company would not
    know what else has been measured since. `is_decided` tells whether the run is no longer needed;
    then it `is_cancelled`. `interval_seconds` lie between heartbeats.
    """

    study: SearchStudy
    reporter: Reporter
    trial: ReportedTrial
    spec: TrialSpec
    state: SearchState
    is_decided: Callable[[], bool]
    warn: Callable[[str], None]
    interval_seconds: float
    is_cancelled: bool = False

    def __post_init__(self) -> None:
        spec, state = self.spec, self.state
        self._next_heartbeat_at = self._next_look_at = time.monotonic() + self.interval_seconds
        self._evaluations = list(spec.inherited_evaluations)
        self._pending: Evaluation | None = None
        self._switch_worker_step = planned_switch_worker_step(spec)
        self._stop: StopRule | None = None
        if may_stop(state.measured_strategy, spec.switch_percent, state.course.runs):
            boundaries = spec.identity.recipe.learning_rate_boundaries
            self._stop = StopRule.of(state.measured_strategy, boundaries)
        self._guard = self._guard_of_candidate()

    def _guard_of_candidate(self) -> EarlyAbort | None:
        """The guard that ends a run as soon as its switch fails.

        None if the search wants to know how much a failing run loses, if runs are made to their
        end, and as long as the accuracy of the first protocol is unknown.
        """
        strategy, history, spec = self.state.measured_strategy, self.state.course.runs, self.spec
        is_candidate = spec.switch_percent < strategy.highest_percent
        is_wanted = is_candidate and strategy.early_stop and strategy.judges_single_runs
        if not is_wanted or not spec.conditions.is_undisturbed:
            return None
        baseline = sound_baseline(history, strategy.highest_percent)
        target = strategy.progress(history).target_accuracy if baseline else None
        if target is None:
            return None
        runs = completed_runs(self.study.store, self.study.name, self.state.rows.values())
        curves = (runs[number].evaluations for number in baseline if number in runs)
        band = measured_band(target, strategy.threshold, curves)
        return EarlyAbort(band, spec.identity, self._switch_worker_step)

    def on_progress(self, worker_step: int) -> None:
        """Sends a heartbeat at most once per interval, with an evaluation that was not told."""
        now = time.monotonic()
        if now >= self._next_heartbeat_at:
            self._next_heartbeat_at = now + self.interval_seconds
            pending, self._pending = self._pending, None
            # A lost heartbeat does no harm, but losing the run for it would.
            with contextlib.suppress(RetryableError):
                study, number = self.study, self.trial.number
                study.store.heartbeat(study.name, number, worker_step)
                if pending is not None:
                    study.note_evaluation(number, pending)
        self.reporter.on_progress(self.trial, worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        """Ends the run if its accuracy is known, if it fails, or is not needed."""
        self._pending = evaluation
        self.reporter.on_evaluation(self.trial, evaluation)
        if self._is_needless():
            self.is_cancelled = True
            return Verdict.STOP
        self._evaluations.append(evaluation)
        word = never_moved(self.spec.identity, self._evaluations)
        if word is not None:
            self.warn(word)
        if self._stop is not None and self._stop.is_settled(
            self._evaluations, self._switch_worker_step
        ):
            return Verdict.STOP
        is_alarmed = self._guard is not None and self._guard.check(self._evaluations, self.on_event)
        return Verdict.STOP if is_alarmed else Verdict.CONTINUE

    def _is_needless(self) -> bool:
        """Looks as often as heartbeats are sent; a busy database is asked again later."""
        now = time.monotonic()
        if now < self._next_look_at:
            return False
        self._next_look_at = now + self.interval_seconds
        with contextlib.suppress(RetryableError):
            return self.is_decided()
        return False

    def on_event(self, event: RunEvent) -> None:
        self.reporter.on_event(self.trial, event)

    def with_alarm(self, record: TrialRecord) -> TrialRecord:
        """The record of the run, with the alarm that ended it."""
        return record if self._guard is None else self._guard.with_alarm(record)


def never_moved(identity: ScheduledJob, evaluations: Sequence[Evaluation]) -> str | None:
    """A warning if the metric was the same in all evaluations of the first half of a run.

    Only the first one in the second half warns, while it is the newest.
    """
    half = identity.total_worker_steps / 2
    is_now = len(evaluations) >= _LEAST_TESTS and evaluations[-1].worker_step >= half
    if not is_now or evaluations[-2].worker_step >= half:
        return None
    if len({evaluation.accuracy for evaluation in evaluations}) > 1:
        return None
    metric = identity.metric
    return (
        f"{metric.name} was {metric.text(evaluations[-1].accuracy)} in all {len(evaluations)}"
        " evaluations of half a run, so switch points cannot be compared: check the metric, the"
        " labels and the learning rate"
    )


def planned_switch_worker_step(spec: TrialSpec) -> int:
    """Returns the worker-step at which the second protocol begins; 0 if it never does."""
    switch = switch_worker_step(spec)
    return 0 if switch >= spec.identity.total_worker_steps else switch
