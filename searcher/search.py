"""The search loop: ask, train, tell, record, and at the end publish the policy.

The loop keeps no state that matters: whatever happens to it, the next one goes on from the
database.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from syncswitch.searcher.decision import Decided, NextRun
from syncswitch.searcher.making import RunMaker
from syncswitch.searcher.plan import SearchPlan, study_name
from syncswitch.searcher.prefixes import DEFAULT_FOLDER, Prefixes
from syncswitch.searcher.repair import Patience, Repairer
from syncswitch.searcher.reporting import Reporter, SilentReporter
from syncswitch.searcher.result import (
    SearchResult,
    SettingResult,
    cost_of,
    draft_policy,
    settings_of,
)
from syncswitch.searcher.rules.adaptive import AdaptiveRule
from syncswitch.searcher.rules.by_name import stored_rule
from syncswitch.searcher.study import SearchStudy
from syncswitch.storage.engine import Database
from syncswitch.storage.errors import RetryableError, UserError
from syncswitch.storage.policies import PolicyRegistry
from syncswitch.storage.records import TimingPolicy, WorkloadIdentity
from syncswitch.storage.registry.policy_search import related_switches
from syncswitch.storage.trials import Owner, SearchInfo, TrialStore
from syncswitch.trainers.trainer import Trainer

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
        checkpoints: Path = DEFAULT_FOLDER,
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
            checkpoints: Folder for the checkpoints that runs share; they go when it is decided.

        Raises:
            UserError: The plan is out of range, or the database cannot be used.
        """
        plan.check()
        self._database = database
        self._identity = identity
        self._plan = plan
        self._open_trainer = open_trainer
        self._reporter: Reporter = reporter or SilentReporter()
        self._patience = patience or Patience()
        self._store = TrialStore(database)
        self._registry = PolicyRegistry(database)
        self._owner = Owner.current()
        self.study_name = study_name(identity, plan)
        known = self._store.register(identity, reference or identity.name, self._info())
        # Who began the search also said what a warm start starts from.
        self._rule = stored_rule(known)
        self._study = SearchStudy.open(database.url, self.study_name, self._rule, plan.base_seed)
        digest = identity.simulated_cluster
        self._study.describe(
            {
                **({} if digest is None else {"simulated_cluster": digest}),
                "workload": identity.name,
                "workers": identity.workers,
                "protocols": f"{identity.first_protocol},{identity.second_protocol}",
                "strategy": self._rule.name,
            }
        )
        # Equal searches of two databases have equal names.
        place = hashlib.sha256(database.url.encode()).hexdigest()[:8]
        prefixes = Prefixes(self._store, self.study_name, self._rule, checkpoints / place)
        self._maker = RunMaker(
            identity,
            self._rule,
            self._study,
            self._store,
            prefixes,
            self._reporter,
            self._patience.beat_seconds,
        )
        self._prefixes = prefixes
        self._repairer = Repairer(self._study, self._store, self._patience, self._maker.measured)
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
                    policy = self._step()
                except RetryableError as error:
                    self._try_again(error)
                    continue
                self._failures_in_a_row = 0
                if policy is not None:
                    return self._end(policy)
        finally:
            self._close_trainer()

    def _step(self) -> TimingPolicy | None:
        """The policy, if there is one now; else one run, where one is wanted."""
        self._repair()
        # A run that ended after the decision may make a rule doubt it; the answer stands.
        published = self._registry.published(self._identity.fingerprint, self.study_name)
        # Not even a baseline that diverged since then takes it away.
        with contextlib.suppress(UserError) if published else contextlib.nullcontext():
            self._report_state()
        if published is not None:
            return published
        decision = self._study.decision()
        if isinstance(decision, Decided):
            return self._publish(decision)
        if not isinstance(decision, NextRun):
            self._reporter.on_wait(decision.switch_percent)
            time.sleep(self._patience.poll_seconds)
            return None
        if self._trainer is None:
            self._trainer = self._open_trainer()
        claim = self._study.claim(self._owner, self._plan.base_seed, self._let_others_choose)
        if claim is not None:
            try:
                self._maker.make(claim, self._trainer)
            except RetryableError:
                # What lost its infrastructure makes no further run.
                self._close_trainer()
                raise
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

    def _publish(self, decided: Decided) -> TimingPolicy:
        """Publishes once per study: a second call returns the same version."""
        rows = self._store.numbered(self.study_name)
        draft = draft_policy(
            self._rule, self._identity, self.study_name, decided, self._study.finished(), rows
        )
        return self._registry.publish(draft)

    def _end(self, policy: TimingPolicy) -> SearchResult:
        """Clears up, and says what the search found and cost."""
        self._store.set_target(self.study_name, policy.target_accuracy)
        self._prefixes.remove()
        self._study.describe({"policy_switch_percent": policy.switch_percent})
        finished, rows = self._study.finished(), self._store.numbered(self.study_name)
        settings: tuple[SettingResult, ...] = ()
        with contextlib.suppress(UserError):
            settings = settings_of(self._rule, finished, rows)
        return SearchResult(
            policy=policy,
            settings=settings,
            cost=cost_of(self._rule, self._identity, finished, rows),
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
        most_runs = self._rule.most_runs if self._rule.repeats else None
        self._reporter.on_state(len(finished), most_runs, progress)

    def _close_trainer(self) -> None:
        trainer, self._trainer = self._trainer, None
        if trainer is not None:
            trainer.close()

    def _info(self) -> SearchInfo:
        rule = self._plan.rule
        if self._plan.warm_start and isinstance(rule, AdaptiveRule):
            rule = replace(rule, related=related_switches(self._database, self._identity))
        return SearchInfo(
            study=self.study_name,
            fingerprint=self._identity.fingerprint,
            strategy=rule.name,
            settings=rule.settings,
            runs=rule.runs,
            threshold=rule.threshold,
            target_accuracy=rule.target_accuracy,
            trainer=self._plan.trainer,
            base_seed=self._plan.base_seed,
            options=rule.options,
        )
