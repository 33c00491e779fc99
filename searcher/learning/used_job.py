"""The lessons of a job's runs: those that its policy rests on, and those that used it; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from syncswitch.searcher.search.observations import cost_of
from syncswitch.searcher.search.recorded import measured_band
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy, Assessment
from syncswitch.searcher.strategies.base import Decided, Decision, NextTrial
from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.errors import UserError
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, Evaluation
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.summary import switches_kept

# Replicates of uses begin here, beyond those of any search.
_FIRST_REPLICATE = 1_000_000


def lessons_of(
    use: Observation, number: int, seed: int, failed: Iterable[tuple[float, float | None]] = ()
) -> list[Observation]:
    """One observation of each switch that failed in a run, and one of the switch that held.

    A failed switch that trained to its end counts with its accuracy, as a run of a search does.

    A run goes on from a failed switch as if it had never been, so its final accuracy is one of the
    last switch, or of the first protocol alone. With the first protocol alone the same seed gives
    the same run, which counts once; what comes after a switch differs from run to run.

    Args:
        use: The run, with the switch that held and the accuracy of the model that it delivered. If
            it is alarmed, that switch failed as well, and the first protocol alone held.
        number: Number of the use, from 0.
        seed: Seed of the use, 0 or more.
        failed: The switches that failed before, each with its converged accuracy; None where it did
            not come to its end.
    """
    if use.alarmed:
        failed = (*failed, (use.switch_percent, None))
        use = replace(use, switch_percent=BASELINE_PERCENT, alarmed=False)
    use = replace(use, trial_number=_FIRST_REPLICATE + number, replicate=_FIRST_REPLICATE + number)
    lessons = [
        replace(
            use,
            switch_percent=percent,
            accuracy=use.accuracy if accuracy is None else accuracy,
            diverged=False,
            alarmed=accuracy is None,
        )
        for percent, accuracy in failed
    ]
    alone = use.switch_percent == BASELINE_PERCENT
    lessons.append(replace(use, replicate=-1 - seed) if alone else use)
    # The run is paid for once.
    return [one if place == 0 else replace(one, cost=None) for place, one in enumerate(lessons)]


LEARNT = "learning-"
"""Prefix of the studies of policies that no search found."""

FIRST_REASON = "nothing but the first protocol alone was tried so far"
"""The reason of the policy of a job that was trained once, with the first protocol alone."""

_USUAL_TARGET_RUNS = 5
_LEAST_FAILED = 2


@dataclass(frozen=True, slots=True)
class Revision:
    """A reason to leave a policy for another switch.

    Attributes:
        version: Version of the policy.
        switch_percent: Its switch.
        uses: Number of runs that used it.
        failed: Number of those in which the switch failed.
        expected_time: Expected time of a later training with it, in trainings with the first
            protocol alone; None where no run had its switch.
        answer: The other switch, or the first protocol alone.
    """

    version: int
    switch_percent: float
    uses: int
    failed: int
    expected_time: float | None
    answer: Decided

    @property
    def why(self) -> str:
        """The reason as a clause, which becomes that of the new policy."""
        here, there = self.expected_time, self.answer.expected_time
        what = "is more likely to keep the accuracy"
        if here is None or there is None:
            what = "is expected to save time"
        elif there < here:
            what = f"is expected to save time ({there:.2f} instead of {here:.2f})"
        later = self.answer.switch_percent > self.switch_percent
        which = "a later" if later else "an earlier"
        failed = f"{self.failed} of {self.uses} switches failed with version {self.version}, and "
        return (failed if self.failed else "") + f"{which} switch {what}"


@dataclass(frozen=True)
class UsedJob:
    """A policy and the uses of all versions of it.

    Attributes:
        policy: The version in question.
        uses: The uses in the order in which they were recorded, without disturbed ones.
        goes_back: Whether a run that fails goes back to its switch, rather than to its beginning.
    """

    policy: TimingPolicy
    uses: tuple[StoredTrial, ...]
    goes_back: bool = True

    @property
    def has_begun_anew(self) -> bool:
        """Whether a failed use also lost its training before the switch."""
        first_failures = (use.failed[0] for use in self.uses if use.failed)
        return any(
            one.switch_percent > 0 and one.lost_seconds >= one.elapsed_seconds > 0
            for one in first_failures
        )

    @property
    def kept(self) -> list[bool]:
        """Whether the switch kept the accuracy, for each use of this version with its switch."""
        return switches_kept(self.policy, self.uses)

    @property
    def threshold(self) -> float:
        """beta: the policy's, or the one measured in its first uses; 0 while these are too few.

        Raises:
            UserError: The uses all measured the same, so there is no chance to tell.
        """
        if self.policy.threshold:
            return self.policy.threshold
        try:
            return measured_threshold(self._baseline_accuracies) or 0.0
        except UserError as error:
            raise UserError(
                f"{error} in a search, with `syncswitch-search run`, and learn from its policy"
            ) from error

    def next_percent(self, expected_uses: int) -> float:
        """The switch of the next run: one worth trying, or the best that is known.

        Args:
            expected_uses: Total number of trainings of the job; after so many nothing is tried.

        Raises:
            UserError: The first protocol alone diverged, so there is nothing to compare with, or
                all runs with it measured the same, so there is no threshold.
        """
        decision = self._decision(expected_uses)
        return self.policy.switch_percent if decision is None else decision.switch_percent

    def revision(self, expected_uses: int | None = None) -> Revision | None:
        """The revision that should replace the policy; None where it may stay.

        Args:
            expected_uses: Total number of trainings of the job, by runs that learn: the policy
                stays while they have something left to try. None where all runs keep to the policy:
                it stays until its switch has failed twice, as once may be bad luck.

        Raises:
            UserError: As `next_percent`.
        """
        here, failed = self.policy.switch_percent, self.kept.count(False)
        if expected_uses is None and failed < _LEAST_FAILED:
            return None
        answer = self._decision(expected_uses or 0)
        is_first = self.policy.reason == FIRST_REASON
        if not isinstance(answer, Decided) or (answer.switch_percent == here and not is_first):
            return None
        time = self._assessment().expected_time(here)
        return Revision(self.policy.version, here, len(self.kept), failed, time, answer)

    def _decision(self, expected_uses: int) -> Decision | None:
        """The next switch to try, or the answer if nothing is left to try; None without either."""
        if not self.threshold:
            return NextTrial(BASELINE_PERCENT)
        left = expected_uses - len(self.uses)
        return (
            self._assessment(left).decision() if left > 0 else self._assessment().standing_answer()
        )

    def _assessment(self, uses_left: int | None = None) -> Assessment:
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
        whole = self.policy.total_worker_steps
        used = (
            lesson
            for number, use in enumerate(self.uses)
            for lesson in lessons_of(
                _observed(use),
                number,
                use.seed or 0,
                [
                    (one.switch_percent, one.accuracy if one.worker_step >= whole else None)
                    for one in use.failed
                ],
            )
        )
        return [*rests_on, *used]

    def strategy(self) -> AdaptiveStrategy:
        """The strategy of a search for this job, over all switch points of its runs so far."""
        policy, runs = self.policy, self.observations()
        tried = {run.switch_percent for run in runs}
        usual = AdaptiveStrategy(settings=6)
        known_runs = policy.band.runs if policy.band is not None else 0
        return replace(
            usual,
            threshold=self.threshold,
            guarded=policy.guarded,
            goes_back=self.goes_back,
            keep=policy.keep or usual.keep,
            share_prefix=False,
            early_stop=False,
            switch_points=tuple(sorted({*usual.grid(), *tried, policy.switch_percent})),
            target_accuracy=None if self._has_baseline else policy.target_accuracy,
            target_runs=known_runs or _USUAL_TARGET_RUNS,
            accuracy_range=policy.decided_by.accuracies,
        )

    def band(self, curves: Mapping[int, Sequence[Evaluation]]) -> Band | None:
        """The band that the next run is compared with.

        Uses that ended in the first protocol alone count for the target as much as the runs of the
        search, so a target that was measured too high comes down. The curve stays that of the
        search where there was one.

        Args:
            curves: Evaluations of the uses, by `trial_id`.
        """
        own, known = self.policy.band, self._baseline_accuracies
        if not known or (own is not None and own.runs == 0):
            return own
        if own is not None and self.policy.evidence:
            total = own.target_accuracy * own.runs + math.fsum(known)
            return replace(own, target_accuracy=total / (own.runs + len(known)))
        measured = [curves[use.trial_id] for use in self._baseline_uses if use.trial_id in curves]
        return measured_band(statistics.fmean(known), self.threshold, measured)

    def with_measured_threshold(self) -> TimingPolicy | None:
        """The version to publish once the first uses have measured its threshold; else None."""
        threshold = self.threshold
        if threshold == self.policy.threshold:
            return None
        band = self.policy.band
        return self._new_version(
            threshold=threshold, band=None if band is None else replace(band, threshold=threshold)
        )

    def draft(self, revision: Revision) -> TimingPolicy:
        """The version that a revision publishes after this one."""
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
        return self._new_version(
            switch_percent=percent,
            target_accuracy=decided.target_accuracy,
            mean_accuracy=statistics.fmean(accuracies) if accuracies else None,
            training_seconds=statistics.fmean(seconds) if seconds else None,
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

    def _new_version(self, **changes: Any) -> TimingPolicy:
        return replace(
            self.policy,
            study=f"{LEARNT}{self.policy.fingerprint[:12]}-{self.policy.version}",
            created_at=datetime.now(timezone.utc).isoformat(),
            software=software_versions(),
            **changes,
        )

    @property
    def _has_baseline(self) -> bool:
        return any(
            run.switch_percent == BASELINE_PERCENT and not run.diverged
            for run in self.observations()
        )

    @property
    def _baseline_accuracies(self) -> list[float]:
        """Accuracies of uses that ended in the first protocol alone; each seed counts once."""
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
