"""A search: makes runs until the strategy has its answer, and publishes that as a policy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.recorded import recorded_replicates
from syncswitch.searcher.search.result import (
    SearchResult,
    SwitchPointResult,
    cost_of,
    draft_policy,
    switch_points_of,
)
from syncswitch.searcher.search.study import SearchState
from syncswitch.searcher.search.trial_guard import curves_of
from syncswitch.searcher.search.trial_loop import LoopOptions, TrialLoop
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided, Strategy, Wait
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
        **options: Unpack[LoopOptions],
    ) -> None:
        """Opens the study.

        Args:
            database: Holds Optuna's tables and ours.
            identity: What is searched for.
            plan: How.
            open_trainer: Called when the first run is needed, and again after a failure.
            **options: See `LoopOptions`; the checkpoints go when the search is decided.

        Raises:
            UserError: The plan is out of range, or the database cannot be used.
        """
        plan.check()
        self._identity, self._conditions = identity, plan.conditions
        self._registry = PolicyRegistry(database)
        self._loop = TrialLoop(
            database,
            identity,
            plan,
            first_strategy(database, identity, plan),
            open_trainer,
            is_decided=lambda: self._published() is not None,
            **options,
        )
        self.study_name = self._loop.study.name

    def run(self) -> SearchResult:
        """Makes the runs that are missing, then publishes the policy.

        `KeyboardInterrupt` gives the current run back and is raised again.

        Raises:
            UserError: The baseline diverged, or the trainer refuses the workload.
            RetryableError: Too many runs in a row failed.
        """
        return self._loop.run(self._move)

    def _move(self, state: SearchState) -> SearchResult | PlannedTrial | Wait:
        """What came of the search, if it is decided; else what the strategy wants."""
        published = self._published()
        if published is not None:
            # Others may have made runs between the look and the policy.
            state = self._loop.study.read(self._loop.store)
            # Not even a baseline that diverged since then takes the answer away.
            with contextlib.suppress(UserError):
                self._loop.report(state)
            return self._end(published, state)
        self._loop.report(state)
        match state.plan:
            case Decided() as decided:
                return self._end(self._publish(decided, state), state)
            case planned:
                return planned

    def _published(self) -> TimingPolicy | None:
        return self._registry.published(self._identity.fingerprint, self.study_name)

    def _publish(self, decided: Decided, state: SearchState) -> TimingPolicy:
        """Publishes once per study: a second call returns the same version."""
        draft = draft_policy(
            state.measured_strategy,
            self._identity,
            self.study_name,
            decided,
            state.course.runs,
            state.rows,
            curves_of(self._loop.store, self.study_name, state.rows),
        )
        return self._registry.publish(draft)

    def _end(self, policy: TimingPolicy, state: SearchState) -> SearchResult:
        """Clears up, and says what the search found and cost."""
        loop = self._loop
        loop.store.set_target(self.study_name, policy.target_accuracy)
        loop.prefixes.remove()
        loop.study.describe({"policy_switch_percent": policy.switch_percent})
        switch_points: tuple[SwitchPointResult, ...] = ()
        # A run that ended after the decision may make a strategy doubt it; the answer stands.
        with contextlib.suppress(UserError):
            switch_points = switch_points_of(loop.strategy, state.course.runs, state.rows)
        return SearchResult(
            policy=policy,
            switch_points=switch_points,
            cost=cost_of(self._identity, state.rows.values()),
            threshold_runs=loop.strategy.threshold_runs,
        )


def first_strategy(database: Database, identity: WorkloadIdentity, plan: SearchPlan) -> Strategy:
    """The strategy as it is registered where nobody has begun this search."""
    strategy = plan.strategy
    if not isinstance(strategy, AdaptiveStrategy):
        return strategy
    recorded = recorded_replicates(TrialStore(database), identity, plan)
    return replace(strategy, recorded=recorded)
