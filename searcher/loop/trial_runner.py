"""Runs one trial of a search: begin, train, record, tell."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from syncswitch.searcher.loop.observer import TrialObserver
from syncswitch.searcher.loop.other_pairs import OtherPairs, as_whole
from syncswitch.searcher.loop.recorded import recorded_result
from syncswitch.searcher.loop.reporter import ReportedTrial, Reporter
from syncswitch.searcher.loop.shared_checkpoints import Prefix, Prefixes
from syncswitch.searcher.loop.trial_guard import alarmed, comparison_band, trial_guard
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.early_stopping import StopRule, may_stop
from syncswitch.searcher.study.state import SearchState
from syncswitch.searcher.study.study import Claim, SearchStudy
from syncswitch.searcher.text.early_words import never_moved
from syncswitch.storage.errors import FatalError, RetryableError, SyncSwitchError, UserError
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialSpec, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import CANCELLED, INTERRUPTED, Owner
from syncswitch.trainers.job.schedule import later_switches, switch_worker_step
from syncswitch.trainers.trainer import Trainer

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Trained:
    """What came of a trial."""

    record: TrialRecord
    is_cancelled: bool


@dataclass
class TrialRunner:
    """Runs the trials that this process claimed."""

    identity: WorkloadIdentity
    conditions: RunConditions
    strategy: Strategy
    study: SearchStudy
    store: TrialStore
    prefixes: Prefixes
    reporter: Reporter
    heartbeat_interval_seconds: float
    is_decided: Callable[[], bool]
    trainer_kind: str
    others: OtherPairs

    def __post_init__(self) -> None:
        self._owner = Owner.current()
        self._has_warned = False

    def run(self, claim: Claim, trainer: Trainer) -> None:
        """Runs one trial: begin, train, record, tell, in this order (see `Repairer`).

        Once it is recorded it is never given back: what cannot be told, the next repair tells.

        Raises:
                RetryableError: Infrastructure failed; the run is given back.
                UserError: The trainer refuses the workload.
        """
        trial = self._reported(claim)
        self.reporter.on_run(trial)
        try:
            trained = self._trained(claim, trial, trainer)
            record = trained.record
            _check(record)
            if trained.is_cancelled:
                self.store.cancel(self.study.name, claim.number, record, CANCELLED)
            else:
                plateau = self._plateau_accuracy(record)
                self.store.complete(self.study.name, claim.number, record, plateau)
        except BaseException as error:
            self._give_back(claim.number, error)
            if isinstance(error, RetryableError):
                self.reporter.on_failed(trial, str(error))
            raise
        if trained.is_cancelled:
            self.reporter.on_cancelled(trial, record)
            self.study.fail(claim.number)
            return
        self.reporter.on_finished(trial, record)
        self.study.note_result(claim.number, record.diverged, record.training_seconds)
        self.study.complete(claim.number, record.converged_accuracy)

    def _trained(self, claim: Claim, trial: ReportedTrial, trainer: Trainer) -> _Trained:
        """Begins, and trains unless the run is recorded already."""
        spec = self._spec(claim, Prefix())
        recorded = recorded_result(self.store, spec, self.trainer_kind)
        recorded = recorded or self.others.baseline(spec)
        if recorded is not None:
            self.store.begin(
                self.study.name,
                claim.number,
                spec,
                self._owner,
                speculative=claim.is_speculative,
            )
            return _Trained(recorded, is_cancelled=False)
        while True:
            prefix = self.prefixes.of(
                claim.number, claim.switch_percent, claim.replicate, claim.state.rows
            )
            spec = self._spec(claim, prefix)
            self.store.begin(
                self.study.name,
                claim.number,
                spec,
                self._owner,
                fork=prefix.fork,
                speculative=claim.is_speculative,
            )
            if not self.study.is_running(claim.number):
                raise RetryableError(f"trial {claim.number} was taken for stale before it began")
            try:
                # What else is measured would not be known to a search without company.
                observer = self._observer(trial, spec, prefix, claim.state)
                record = trainer.train(spec, observer)
                if observer.alarm is not None:
                    record = alarmed(record, observer.alarm)
            except UserError as error:
                if spec.fork_from is None:
                    raise
                # The run can be made without its checkpoint; a true fault shows again then.
                self.prefixes.distrust(spec.fork_from)
                self.reporter.on_failed(trial, str(error))
            else:
                is_whole = prefix.path is None or prefix.fork is not None
                record = record if is_whole else as_whole(record)
                return _Trained(record, observer.is_cancelled)

    def _spec(self, claim: Claim, prefix: Prefix) -> TrialSpec:
        spec = TrialSpec(
            self.identity,
            claim.switch_percent,
            claim.seed,
            claim.replicate,
            fork_from=prefix.path,
            checkpoint_percents=prefix.checkpoint_percents,
            checkpoint_directory=prefix.checkpoint_directory,
            conditions=self.conditions,
            inherited_evaluations=prefix.evaluations,
        )
        band = comparison_band(self.store, self.strategy, spec, self.trainer_kind)
        return replace(spec, band=band)

    def _observer(
        self, trial: ReportedTrial, spec: TrialSpec, prefix: Prefix, state: SearchState
    ) -> TrialObserver:
        """Watches a run of a search that was at this state when it was planned."""
        known = state.course.runs

        def heartbeat(worker_step: int, evaluation: Evaluation | None) -> None:
            # A heartbeat that is lost does no harm, a run that is lost for it does.
            with contextlib.suppress(RetryableError):
                self.store.heartbeat(self.study.name, trial.number, worker_step)
                if evaluation is not None:
                    self.study.note_evaluation(trial.number, evaluation)

        stop = None
        # What comes after a later switch is not known before it.
        if may_stop(self.strategy, spec.switch_percent, known) and not later_switches(spec):
            is_candidate = spec.switch_percent < self.strategy.highest_percent
            target = self.strategy.progress(known).target_accuracy
            # What measures the target is never hopeless.
            boundaries = self.identity.learning_rate_boundaries
            stop = StopRule.of(self.strategy, boundaries, target if is_candidate else None)
        return TrialObserver(
            trial,
            self.reporter,
            heartbeat,
            self.heartbeat_interval_seconds,
            stop=stop,
            inherited=prefix.evaluations,
            switch_worker_step=_planned_switch_worker_step(spec),
            guard=trial_guard(self.store, self.study.name, state, spec),
            look=self._look,
            is_decided=self.is_decided,
        )

    def _look(self, evaluations: Sequence[Evaluation]) -> None:
        """Warns once of a metric that never moves: runs may take hours."""
        word = None if self._has_warned else never_moved(self.identity, evaluations)
        if word is not None:
            self._has_warned = True
            _LOG.warning(word)

    def _plateau_accuracy(self, record: TrialRecord) -> float | None:
        """What a run that was made to its end would have measured had it been stopped."""
        is_whole = not record.stopped_early and not later_switches(record.spec)
        if not self.strategy.early_stop or not is_whole or record.diverged:
            return None
        stop = StopRule.of(self.strategy, self.identity.learning_rate_boundaries)
        evaluations = (*record.spec.inherited_evaluations, *record.evaluations)
        return stop.plateau_accuracy(evaluations, _planned_switch_worker_step(record.spec))

    def _reported(self, claim: Claim) -> ReportedTrial:
        return ReportedTrial(
            number=claim.number,
            switch_percent=claim.switch_percent,
            repeat=claim.replicate + 1,
            repeats=self.strategy.runs_at(claim.switch_percent),
            total_worker_steps=self.identity.total_worker_steps,
            first_protocol=self.identity.first_protocol,
            is_speculative=claim.is_speculative,
            metric=self.identity.decided_by,
        )

    def _give_back(self, number: int, error: BaseException) -> None:
        """Lets the run be made again; what cannot be written now, the next repair does."""
        self.study.stale.add(number)
        with contextlib.suppress(SyncSwitchError):
            row = self.store.get(self.study.name, number)
            if row is not None and row.state == TrialState.COMPLETE:
                return  # the interruption came after the result: the next repair tells it
            is_interrupt = isinstance(error, KeyboardInterrupt)
            reason = " ".join(str(error).split()) or type(error).__name__
            reason = INTERRUPTED if is_interrupt else reason
            self.store.fail(self.study.name, number, reason[:500])
            self.study.fail(number)


def _planned_switch_worker_step(spec: TrialSpec) -> int:
    """Where the second protocol begins; 0 where it never does."""
    switch = switch_worker_step(spec)
    return 0 if switch >= spec.identity.total_worker_steps else switch


def _check(record: TrialRecord) -> None:
    # Optuna turns a NaN into a failed trial, which would be run again for ever.
    metric = record.spec.identity.decided_by
    tested = [one.accuracy for one in record.evaluations]
    # One that diverged before its first test has none.
    measured = [] if record.diverged and not tested else [record.converged_accuracy]
    for accuracy in (*measured, *tested):
        if not metric.is_possible(accuracy):
            raise FatalError(
                f"the trainer reported {metric.name} {metric.value(accuracy):.6g}, which is not"
                f" {metric.range_text}; check the metric of the workload"
            )
