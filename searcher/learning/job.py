"""What is known of a job with a policy: the runs that it rests on, and those that used it; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from syncswitch.searcher.learning.lessons import lessons_of
from syncswitch.searcher.results.band import measured_band
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided, NextTrial
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.study.observations import cost_of
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, Evaluation
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.summary import observation_of, switches_kept

if TYPE_CHECKING:
    from syncswitch.searcher.strategies.adaptive.assessment import Assessment

USUAL_USES = 30
"""How often a job is trained in all, where nobody says."""

LEARNT = "learning-"
"""How the studies of policies begin that no search found."""

FIRST_REASON = "nothing but the first protocol alone was tried so far"
"""Why the policy of a job that was trained once is the first protocol alone."""

_USUAL_TARGET_RUNS = 5


@dataclass(frozen=True, slots=True)
class Revision:
    """Why a policy should be left, and for what.

    Attributes:
        version: Version of the policy.
        switch_percent: Its switch.
        uses: So many runs used it.
        failed: Of these, those whose switch failed.
        expected_time: Of a later training with it, by one of the first protocol alone; None where
            nobody ran its switch.
        answer: Another switch, or the first protocol alone.
    """

    version: int
    switch_percent: float
    uses: int
    failed: int
    expected_time: float | None
    answer: Decided

    @property
    def why(self) -> str:
        """As a clause; a policy keeps it."""
        here, there = self.expected_time, self.answer.expected_time
        saved = "" if here is None or there is None else f" ({there:.2f} instead of {here:.2f})"
        later = self.answer.switch_percent > self.switch_percent
        which = "a later" if later else "an earlier"
        failed = f"{self.failed} of {self.uses} switches failed with version {self.version}, and "
        return (failed if self.failed else "") + f"{which} switch is expected to save time{saved}"


@dataclass(frozen=True)
class UsedJob:
    """A policy and the uses of all versions of it.

    Attributes:
        policy: The version that is asked about; found by the adaptive strategy or by another.
        uses: In the order in which they were recorded; those under disturbances left out.
    """

    policy: TimingPolicy
    uses: tuple[StoredTrial, ...]

    @property
    def kept(self) -> list[bool]:
        """Of each use of this version, with its switch, whether that switch kept the accuracy."""
        return switches_kept(self.policy, map(observation_of, self.uses))

    def next_use(self, uses_left: int) -> NextTrial | Decided:
        """A switch point that the next run should try, or the answer, with which to train on.

        Args:
            uses_left: Trainings to come, the next one included.

        Raises:
            UserError: The first protocol alone diverged, so there is nothing to compare with.
        """
        decision = self._assessment(uses_left).decision()
        assert isinstance(decision, NextTrial | Decided)  # it never waits
        return decision

    def uses_left(self, expected_uses: int) -> int:
        """Trainings to come; one at least, as somebody is about to train."""
        return max(1, expected_uses - len(self.uses))

    def revision(self, uses_left: int | None = None) -> Revision | None:
        """What the policy should be left for; None where it may stay.

        Args:
            uses_left: Trainings to come that may try switch points: the policy stays until they
                have nothing left to try. None where none may.

        Raises:
            UserError: As `next_use`.
        """
        assessment = self._assessment(uses_left)
        answer = assessment.standing_answer() if uses_left is None else assessment.decision()
        here, is_first = self.policy.switch_percent, self.policy.reason == FIRST_REASON
        if not isinstance(answer, Decided) or (answer.switch_percent == here and not is_first):
            return None
        time = assessment.expected_time(here)
        failed = self.kept.count(False)
        return Revision(self.policy.version, here, len(self.kept), failed, time, answer)

    def _assessment(self, uses_left: int | None = None) -> Assessment:
        # NumPy and SciPy take a while to import, and not every run asks.
        from syncswitch.searcher.strategies.adaptive.assessment import Assessment

        return Assessment(self.strategy(), self.observations(), uses_left)

    def observations(self) -> list[Observation]:
        """The runs that the policy rests on, and all uses."""
        rests_on = [
            Observation(
                run.switch_percent,
                run.converged_accuracy,
                run.diverged,
                trial_number=number,
                replicate=run.replicate,
            )
            for number, run in enumerate(self.policy.evidence)
        ]
        used = (
            lesson
            for number, use in enumerate(self.uses)
            for lesson in lessons_of(
                _observed(use),
                number,
                use.seed or 0,
                tuple(one.switch_percent for one in use.failed_switches),
            )
        )
        return [*rests_on, *used]

    def strategy(self) -> AdaptiveStrategy:
        """How this job would be searched, on all switch points that it has seen.

        Once it is known between which halvings the answer lies, the middle of the two as well.
        """
        policy, runs = self.policy, self.observations()
        tried = {run.switch_percent for run in runs}
        usual = AdaptiveStrategy(settings=6)
        known_runs = policy.band.runs if policy.band is not None else 0
        earlier = [percent for percent in tried if percent < policy.switch_percent < 100]
        middle = {(policy.switch_percent + max(earlier)) / 2} if earlier else set()
        return replace(
            usual,
            threshold=policy.threshold,
            guarded=policy.guarded,
            keep=policy.keep or usual.keep,
            share_prefix=False,
            early_stop=False,
            switch_points=tuple(sorted({*usual.grid(), *tried, *middle, policy.switch_percent})),
            target_accuracy=None if self._has_baseline else policy.target_accuracy,
            target_runs=known_runs or _USUAL_TARGET_RUNS,
            accuracy_range=policy.decided_by.accuracies,
        )

    def band(self, curves: Mapping[int, Sequence[Evaluation]]) -> Band | None:
        """What a next run is held against.

        Uses of the first protocol alone, those that a guard sent back among them, count for the
        target as much as the runs of the search: so one that was measured too high comes down. A
        curve stays that of the search where there was one.

        Args:
            curves: Of the uses, by `trial_id`.
        """
        own, known = self.policy.band, self._baseline_accuracies
        if not known or (own is not None and own.runs == 0):
            return own
        if own is not None and self.policy.evidence:
            total = own.target_accuracy * own.runs + math.fsum(known)
            return replace(own, target_accuracy=total / (own.runs + len(known)))
        measured = [curves[use.trial_id] for use in self._baseline_uses if use.trial_id in curves]
        return measured_band(statistics.fmean(known), self.policy.threshold, measured)

    def draft(self, revision: Revision) -> TimingPolicy:
        """The version to publish after this one."""
        decided = revision.answer
        percent = decided.switch_percent
        mine = [use for use in self.uses if use.switch_percent == percent and not use.diverged]
        held = [use for use in self.uses if use.held_percent == percent and not use.diverged]
        accuracies = [one.converged_accuracy for one in held if one.converged_accuracy is not None]
        seconds = [one.training_seconds for one in mine if one.training_seconds is not None]
        for run in self.policy.evidence:
            if run.switch_percent == percent and not run.diverged:
                accuracies.append(run.converged_accuracy)
                seconds.append(run.training_seconds)
        band = self.policy.band
        if band is not None:
            band = replace(band, target_accuracy=decided.target_accuracy)
        return replace(
            self.policy,
            switch_percent=percent,
            target_accuracy=decided.target_accuracy,
            mean_accuracy=statistics.fmean(accuracies) if accuracies else None,
            training_seconds=statistics.fmean(seconds) if seconds else None,
            study=f"{LEARNT}{self.policy.fingerprint[:12]}-{self.policy.version}",
            created_at=datetime.now(timezone.utc).isoformat(),
            software=software_versions(),
            confidence=decided.confidence,
            kept_share=decided.kept_share,
            delivered_share=decided.delivered_share,
            baseline_kept_share=decided.baseline_kept_share,
            expected_time=decided.expected_time,
            speed_up_low=None,
            speed_up_high=None,
            reason=decided.reason if self.policy.reason == FIRST_REASON else revision.why,
            band=band,
        )

    @property
    def _has_baseline(self) -> bool:
        return any(
            run.switch_percent == BASELINE_PERCENT and not run.diverged
            for run in self.observations()
        )

    @property
    def _baseline_accuracies(self) -> list[float]:
        """Of uses; one seed gives one run of the first protocol alone, which counts once."""
        by_seed = {use.seed: use.converged_accuracy for use in self._baseline_uses}
        return [accuracy for accuracy in by_seed.values() if accuracy is not None]

    @property
    def _baseline_uses(self) -> list[StoredTrial]:
        return [
            use for use in self.uses if not use.diverged and use.held_percent == BASELINE_PERCENT
        ]


def _observed(use: StoredTrial) -> Observation:
    return Observation(
        use.switch_percent if use.held_percent is None else use.held_percent,
        use.converged_accuracy or 0.0,
        bool(use.diverged),
        cost=cost_of(use),
    )
