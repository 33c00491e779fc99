"""A search: makes runs until its strategy has the answer, and publishes that as a policy."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime, timezone

from syncswitch.searcher.search.loop import TrialLoop
from syncswitch.searcher.search.observations import total_cost
from syncswitch.searcher.search.recorded import completed_runs, measured_band, sound_baseline
from syncswitch.searcher.search.study import SearchState
from syncswitch.searcher.speed_up import speed_ups
from syncswitch.searcher.strategies.base import Decided, SwitchPointSummary, Wait
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.storage.errors import UserError
from syncswitch.storage.metrics import mean_of
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.queries.search_costs import SearchCost
from syncswitch.storage.records.policy import Evidence, Measured, TimingPolicy


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The published policy, and what the search measured.

    Attributes:
        policy: The policy.
        switch_points: What its runs measured at each switch point, with their mean training time
            unless all of them diverged.
        cost: The cost of the search.
    """

    policy: TimingPolicy
    switch_points: tuple[tuple[SwitchPointSummary, float | None], ...]
    cost: SearchCost


class Search(TrialLoop[SearchResult]):
    """Finds the timing policy of one workload.

    Two searches with the same plan and job on the same database are one: the second goes on where
    the first was, shares its work, or answers at once.
    """

    def is_decided(self) -> bool:
        return self._published() is not None

    def move(self, state: SearchState) -> SearchResult | PlannedTrial | Wait:
        published = self._published()
        if published is not None:
            # Others may have made runs between the look and the policy.
            state = self.study.read()
            # Even a baseline run that diverged since then does not take the answer away.
            with contextlib.suppress(UserError):
                self.report(state)
            return self._end(published, state)
        self.report(state)
        match state.plan:
            case Decided() as decided:
                # A second call for the same study returns the same version.
                return self._end(
                    PolicyRegistry(self._database).publish(self._draft(decided, state)), state
                )
            case planned:
                return planned

    def _published(self) -> TimingPolicy | None:
        registry = PolicyRegistry(self._database)
        return registry.published(self._identity.fingerprint, self.study_name)

    def _end(self, policy: TimingPolicy, state: SearchState) -> SearchResult:
        assert policy.target_accuracy is not None  # a search measures it first
        self.store.set_target(self.study_name, policy.target_accuracy)
        self.prefixes.remove()
        self.study.describe({"policy_switch_percent": policy.switch_percent})
        switch_points: tuple[tuple[SwitchPointSummary, float | None], ...] = ()
        # A baseline run that diverged after the decision changes nothing: the answer stands.
        with contextlib.suppress(UserError):
            summaries = self.strategy.progress(state.course.runs).summaries
            switch_points = tuple(
                (one, _mean_seconds(one.switch_percent, state)) for one in summaries
            )
        cost = total_cost(self._identity, state.rows.values())
        return SearchResult(policy, switch_points, cost)

    def _draft(self, decided: Decided, state: SearchState) -> TimingPolicy:
        strategy, identity, runs = state.measured_strategy, self._identity, state.course.runs
        percent, highest = decided.switch_percent, strategy.highest_percent
        summaries = strategy.progress(runs).summaries
        accuracies = {each.switch_percent: each.mean_accuracy for each in summaries}
        sound = [run for run in runs if not run.diverged]
        timed = [(run.switch_percent, state.rows[run.trial_number]) for run in sound]
        speed_up = speed_ups(identity, timed, highest).get(percent)
        completed = completed_runs(self.store, self.study_name, state.rows.values())
        band, is_for_guard = None, strategy.is_guarded
        if decided.target_accuracy is not None:
            baseline = sound_baseline(runs, highest)
            curves = (completed[number].evaluations for number in baseline if number in completed)
            band = measured_band(decided.target_accuracy, strategy.threshold, curves)
        return TimingPolicy(
            job=identity.job.key,
            protocols=identity.protocols,
            switch_percent=percent,
            target_accuracy=decided.target_accuracy,
            promise=decided.promise,
            version=1,
            allowed=strategy.allowed,
            measured=Measured(
                mean_accuracy=accuracies.get(percent),
                training_seconds=_mean_seconds(percent, state),
                baseline_seconds=_mean_seconds(highest, state),
                speed_up_low=speed_up.low if speed_up else None,
                speed_up_high=speed_up.high if speed_up else None,
            ),
            strategy=strategy.name,
            study=self.study_name,
            evidence=tuple(
                Evidence(
                    study=self.study_name,
                    trial_number=run.trial_number,
                    switch_percent=run.switch_percent,
                    replicate=run.replicate,
                    converged_accuracy=run.accuracy,
                    diverged=run.diverged,
                    training_seconds=state.rows[run.trial_number].times.training_seconds or 0.0,
                )
                for run in sorted(runs, key=lambda run: run.trial_number)
            ),
            created_at=datetime.now(timezone.utc).isoformat(),
            software=software_versions(),
            guarded=is_for_guard,
            min_kept_share=None if is_for_guard else strategy.share_to_keep,
            band=band,
        )


def _mean_seconds(percent: float, state: SearchState) -> float | None:
    return mean_of(
        state.rows[run.trial_number].times.whole_run_seconds
        for run in state.course.runs
        if run.switch_percent == percent and not run.diverged
    )
