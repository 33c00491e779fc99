"""What is known of a job with a policy: the runs that it rests on, and those that used it; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from syncswitch.searcher.learning.lessons import lessons_of
from syncswitch.searcher.learning.revision import Revision, revised
from syncswitch.searcher.results.band import measured_band
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.study.observations import cost_of
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, Evaluation
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.summary import observation_of, switches_kept

_USUAL_KEEP = 0.95
_USUAL_TARGET_RUNS = 5


@dataclass(frozen=True)
class UsedJob:
    """A policy and the uses of all versions of it.

    Attributes:
        policy: The version that is asked about.
        uses: In the order in which they were recorded; those under disturbances left out.
    """

    policy: TimingPolicy
    uses: tuple[StoredTrial, ...]

    @property
    def kept(self) -> list[bool]:
        """Of each use of this version, with its switch, whether that switch kept the accuracy."""
        return switches_kept(self.policy, map(observation_of, self.uses))

    def revision(self) -> Revision | None:
        """A later switch; None where the policy may stay."""
        return revised(self.strategy(), self.observations(), self.policy.switch_percent, self.kept)

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

    def strategy(self, uses: int = 30) -> AdaptiveStrategy:
        """How this job would be searched, on all switch points that it has seen."""
        policy = self.policy
        usual = AdaptiveStrategy(settings=6)
        seen = {run.switch_percent for run in self.observations()}
        known_runs = policy.band.runs if policy.band is not None else 0
        return replace(
            usual,
            threshold=policy.threshold,
            keep=policy.keep or _USUAL_KEEP,
            uses=uses,
            share_prefix=False,
            early_stop=False,
            switch_points=tuple(sorted({*usual.grid(), *seen, policy.switch_percent})),
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

    def draft(self, decided: Decided, study: str, reason: str | None) -> TimingPolicy:
        """A policy to publish after this one."""
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
            study=study,
            created_at=datetime.now(timezone.utc).isoformat(),
            software=software_versions(),
            confidence=decided.confidence,
            guarded=True,
            keep=None,
            kept_share=decided.kept_share,
            delivered_share=decided.delivered_share,
            baseline_kept_share=decided.baseline_kept_share,
            expected_time=decided.expected_time,
            speed_up_low=None,
            speed_up_high=None,
            reason=reason,
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
