"""The search loop: ask, train, tell, record, and at the end publish the policy.

The loop keeps no state that matters: whatever happens to it, the next one goes on from the
database.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable

from syncswitch.searcher.decision import Decided, NextRun
from syncswitch.searcher.plan import SearchPlan, study_name
from syncswitch.searcher.repair import Patience, Repairer
from syncswitch.searcher.reporting import Reporter, Run, SilentReporter
from syncswitch.searcher.result import SearchResult, cost_of, draft_policy, settings_of
from syncswitch.searcher.study import Claim, SearchStudy
from syncswitch.storage.engine import Database
from syncswitch.storage.errors import FatalError, RetryableError, SyncSwitchError
from syncswitch.storage.policies import PolicyRegistry
from syncswitch.storage.records import Evaluation, TrialRecord, TrialSpec, WorkloadIdentity
from syncswitch.storage.trials import Owner, SearchInfo, TrialStore
from syncswitch.trainers.trainer import Trainer, Verdict

__all__ = ["Search"]


class Search:
    """Finds the timing policy of one workload.

    Two searches with the same plan and workload on the same database are one: the second goes on
    where the first was, shares its work, or answers at once.
    """

    def __init__(
        self,
        database: Database,
        identity: WorkloadIdentity,
        plan: SearchPlan,
        open_trainer: Callable[[], Trainer],
        *,
        reference: str | None = None,
        reporter: Reporter | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Opens the study.

        Args:
            database: Holds Optuna's tables and ours.
            identity: What is searched for.
            plan: How.
            open_trainer: Called when the first run is needed, and again after a failure.
            reference: Normal form of what the user called the workload.
            reporter: Is told how it goes on.
            patience: How long to wait for what.

        Raises:
            UserError: The plan is out of range, or the database cannot be used.
        """
        plan.check()
        self._identity = identity
        self._plan = plan
        self._rule = plan.rule
        self._open_trainer = open_trainer
        self._reporter: Reporter = reporter or SilentReporter()
        self._patience = patience or Patience()
        self._store = TrialStore(database)
        self._registry = PolicyRegistry(database)
        self._owner = Owner.current()
        self.study_name = study_name(identity, plan)
        self._store.register(identity, reference or identity.name, self._info())
        self._study = SearchStudy.open(database.url, self.study_name, self._rule, plan.base_seed)
        self._study.describe(
            {
                "workload": identity.name,
                "workers": identity.workers,
                "protocols": f"{identity.first_protocol},{identity.second_protocol}",
                "strategy": self._rule.name,
            }
        )
        self._repairer = Repairer(self._study, self._store, self._patience)
        self._trainer: Trainer | None = None
        self._failures_in_a_row = 0

    def run(self) -> SearchResult:
        """Makes the runs that are missing, then publishes the policy.

        `KeyboardInterrupt` gives the current run back and is raised again.

        Raises:
            UserError: The baseline diverged, or the trainer refuses the workload.
            RetryableError: Too many runs in a row failed.
        """
        try:
            while True:
                try:
                    decided = self._step()
                except RetryableError as error:
                    self._try_again(error)
                    continue
                self._failures_in_a_row = 0
                if decided is not None:
                    return self._publish(decided)
        finally:
            self._close_trainer()

    def _step(self) -> Decided | None:
        """One decision, and one run where it asks for one."""
        self._repair()
        self._report_state()
        decision = self._study.decision()
        if isinstance(decision, Decided):
            return decision
        if not isinstance(decision, NextRun):
            self._reporter.on_wait(decision.switch_percent)
            time.sleep(self._patience.poll_seconds)
            return None
        if self._trainer is None:
            self._trainer = self._open_trainer()
        claim = self._study.claim(self._owner, self._plan.base_seed, self._let_others_choose)
        if claim is not None:
            self._make(claim, self._trainer)
        return None

    def _try_again(self, error: RetryableError) -> None:
        """Waits a little before the next attempt.

        Raises:
            RetryableError: It was the last attempt.
        """
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self._patience.attempts:
            raise RetryableError(
                f"gave up after {self._failures_in_a_row} failures in a row, the last one: {error};"
                " the runs made so far are kept, and the same command goes on from them"
            ) from error
        time.sleep(self._patience.retry_seconds)

    def _make(self, claim: Claim, trainer: Trainer) -> None:
        """Makes one run: begin, train, record, tell, in this order (see `Repairer`).

        Once it is recorded it is never given back: what cannot be told, the next repair tells.
        """
        spec = TrialSpec(self._identity, claim.switch_percent, claim.seed, claim.replicate)
        run = self._run_of(claim)
        self._reporter.on_run(run)
        try:
            self._store.begin(self.study_name, claim.number, spec, self._owner)
            if not self._study.is_running(claim.number):
                raise RetryableError(f"trial {claim.number} was taken for lost before it began")
            record = self._train(trainer, spec, run)
            _check(record)
            self._store.complete(self.study_name, claim.number, record)
        except BaseException as error:
            self._give_back(claim.number, error)
            if isinstance(error, RetryableError):
                self._reporter.on_failed(run, str(error))
            raise
        self._reporter.on_finished(run, record)
        self._study.note_result(claim.number, record.diverged, record.training_seconds)
        self._study.complete(claim.number, record.converged_accuracy)

    def _train(self, trainer: Trainer, spec: TrialSpec, run: Run) -> TrialRecord:
        """Trains; a trainer that lost its infrastructure makes no further run."""
        try:
            return trainer.train(spec, self._observer(run))
        except RetryableError:
            self._close_trainer()
            raise

    def _give_back(self, number: int, error: BaseException) -> None:
        """Lets the run be made again; what cannot be written now, the next repair does."""
        self._study.abandoned.add(number)
        with contextlib.suppress(SyncSwitchError):
            row = self._store.get(self.study_name, number)
            if row is not None and row.state == "complete":
                return  # the interruption came after the result: the next repair tells it
            reason = " ".join(str(error).split()) or type(error).__name__
            self._store.fail(self.study_name, number, reason[:500])
            self._study.fail(number)

    def _publish(self, decided: Decided) -> SearchResult:
        """Publishes once per study: a repeated call returns the same version."""
        rule, identity = self._rule, self._identity
        finished = self._study.finished()
        rows = self._store.numbered(self.study_name)
        draft = draft_policy(rule, identity, self.study_name, decided, finished, rows)
        policy = self._registry.publish(draft)
        self._store.set_target(self.study_name, policy.target_accuracy)
        self._study.describe({"policy_switch_percent": policy.switch_percent})
        return SearchResult(
            policy=policy,
            settings=settings_of(rule, finished, rows),
            cost=cost_of(rule, identity, finished, rows),
        )

    def _repair(self) -> None:
        lost = self._repairer.repair()
        if lost:
            self._reporter.on_repaired(lost)

    def _let_others_choose(self) -> None:
        time.sleep(min(0.05, self._patience.poll_seconds))
        self._repair()

    def _report_state(self) -> None:
        finished = self._study.finished()
        progress = self._rule.progress(finished)
        self._reporter.on_state(len(finished), self._rule.most_runs, progress)

    def _observer(self, run: Run) -> _RunObserver:
        def beat(worker_step: int) -> None:
            # A heartbeat that is lost does no harm, a run that is lost for it does.
            with contextlib.suppress(RetryableError):
                self._store.beat(self.study_name, run.number, worker_step)

        return _RunObserver(run, self._reporter, beat, self._patience.beat_seconds)

    def _close_trainer(self) -> None:
        trainer, self._trainer = self._trainer, None
        if trainer is not None:
            trainer.close()

    def _run_of(self, claim: Claim) -> Run:
        return Run(
            number=claim.number,
            switch_percent=claim.switch_percent,
            repeat=claim.replicate + 1,
            repeats=self._rule.runs,
            total_worker_steps=self._identity.total_worker_steps,
            first_protocol=self._identity.first_protocol,
        )

    def _info(self) -> SearchInfo:
        return SearchInfo(
            study=self.study_name,
            fingerprint=self._identity.fingerprint,
            strategy=self._rule.name,
            settings=self._rule.settings,
            runs=self._rule.runs,
            threshold=self._rule.threshold,
            target_accuracy=self._rule.target_accuracy,
            trainer=self._plan.trainer,
            base_seed=self._plan.base_seed,
        )


class _RunObserver:
    """Passes on what a run reports, and has its heart beat."""

    def __init__(
        self, run: Run, reporter: Reporter, beat: Callable[[int], None], beat_seconds: float
    ) -> None:
        self._run = run
        self._reporter = reporter
        self._beat = beat
        self._beat_seconds = beat_seconds
        self._next_beat_at = time.monotonic() + beat_seconds

    def on_progress(self, worker_step: int) -> None:
        """Beats at most once per interval."""
        now = time.monotonic()
        if now >= self._next_beat_at:
            self._next_beat_at = now + self._beat_seconds
            self._beat(worker_step)
        self._reporter.on_progress(self._run, worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        """The paper's rule needs every run to its end."""
        self._reporter.on_evaluation(self._run, evaluation)
        return Verdict.CONTINUE


def _check(record: TrialRecord) -> None:
    # Optuna turns a NaN into a failed trial, which would be run again for ever.
    if not (math.isfinite(record.converged_accuracy) and 0 <= record.converged_accuracy <= 1):
        raise FatalError(
            f"the trainer reported a converged accuracy of {record.converged_accuracy}, which is"
            " not between 0 and 1; check the metric of the workload"
        )
