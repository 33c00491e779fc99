"""A job by its runs so far, and what follows from them for the next one; pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.learning.lessons import lessons_of, shown_percent, tried_switches
from syncswitch.searcher.search.observations import cost_of
from syncswitch.searcher.search.plan import steps_of
from syncswitch.searcher.search.recorded import measured_band
from syncswitch.searcher.strategies.adaptive.strategy import (
    UNTRIED_REASON,
    AdaptiveStrategy,
    Assessment,
)
from syncswitch.searcher.strategies.base import Decided, Decision
from syncswitch.searcher.strategies.baseline import MEASURED, THRESHOLD_RUNS, measured_threshold
from syncswitch.searcher.strategies.observation import Observation, width_of
from syncswitch.storage.metrics import mean_of
from syncswitch.storage.policies.unmeasured import first_study, unmeasured_policy
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.goal import AllowedLoss, Goal
from syncswitch.storage.records.guard import Band, BelievedBand
from syncswitch.storage.records.job import OWN_RULES, ScheduledJob, protocol_text
from syncswitch.storage.records.policy import Measured, Promise, TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, Evaluation
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.summary import (
    accuracies_alone,
    collapse_limit_of,
    goal_of,
    is_alone,
    stated_target,
    switches_kept,
)

if TYPE_CHECKING:
    from syncswitch.searcher.strategies.adaptive.guesses import Experience, Floats, Prior

_USUAL_TARGET_RUNS = 5
_LEAST_FAILED = 2


@dataclass(frozen=True, slots=True)
class Revision:
    """A reason to leave this version of a policy for another switch, the `answer`.

    In so many of its `uses` the switch `failed`. What is expected of it now, its time in trainings
    with the first protocol alone and its share of good models, is None where no run had it.
    """

    version: int
    first_protocol: str
    switch_percent: float
    uses: int
    failed: int
    expected_time: float | None
    delivered_share: float | None
    answer: Decided

    @property
    def why(self) -> str:
        """The reason as a clause, which becomes that of the new policy."""
        here, there, answer = self.expected_time, self.answer.promise.expected_time, self.answer
        share, was = answer.promise.delivered_share, self.delivered_share
        if answer.switch_percent == self.switch_percent and answer.promise.reason is not None:
            return answer.promise.reason
        if here is None or there is None:
            what = "is expected to save time"
        elif there < here:
            first = protocol_text(self.first_protocol)
            what = f"is expected to take {there:.2f} of the time of {first} alone, not {here:.2f}"
        elif share is not None and was is not None and share > was:
            what = "is more likely to keep the accuracy"
        else:
            what = f"has kept the accuracy, unlike any run at {self.switch_percent:g} %"
        which = "a later" if answer.switch_percent > self.switch_percent else "an earlier"
        which += " switch"
        if answer.switch_percent == BASELINE_PERCENT:
            which = "training without a switch"
        failed = f"{self.failed} of {self.uses} switches failed with version {self.version}, and "
        return (failed if self.failed else "") + f"{which} {what}"


@dataclass(frozen=True)
class JobHistory:
    """A version of a policy, and the uses of all its versions.

    Attributes:
        uses: The uses in the order in which they were recorded, without disturbed ones; with those
            that have fallen back from its second protocol to another one.
        goes_back: Whether a run that fails goes back to its switch, rather than to its beginning.
        unrecorded: What a first run teaches, before there is a policy that it is a use of.
        experience: Reads what other jobs of this database with the same second phase have shown,
            which takes a moment the first time; None without any.
    """

    policy: TimingPolicy
    uses: tuple[StoredTrial, ...]
    goes_back: bool = True
    unrecorded: tuple[Observation, ...] = ()
    experience: Callable[[], Experience | None] = lambda: None

    @property
    def _rule(self) -> str | None:
        return self.policy.protocols.momentum_after_switch

    @property
    def has_no_second_phase(self) -> bool:
        """Whether all of its runs were made with the first protocol alone, or there are none."""
        percents = [run.switch_percent for run in self.policy.evidence]
        percents += [use.switch_percent for use in self.uses]
        return all(percent >= BASELINE_PERCENT for percent in percents)

    @property
    def kept(self) -> list[bool]:
        """Whether the switch kept the accuracy, for each use of this version with its switch."""
        return switches_kept(self.policy, self.uses, self.goal)

    @property
    def goal(self) -> Goal | None:
        """What its runs are held to; None until it is measured."""
        return goal_of(self._judging_policy, self.uses)

    @property
    def _judging_policy(self) -> TimingPolicy:
        return replace(self.policy, allowed=self.allowed)

    @property
    def threshold(self) -> float:
        """beta, the accuracy that may be lost; 0 until it is measured. Raises as `allowed`."""
        return self.allowed.threshold

    @property
    def allowed(self) -> AllowedLoss:
        """That of the policy, with a threshold as soon as its first uses have measured one.

        Raises UserError if these all measured the same, so that there is no chance to tell.
        """
        policy = self.policy
        if policy.allowed.is_known:
            return policy.allowed
        limit = collapse_limit_of(policy, self.uses)
        searched = [one for one in policy.accuracies_alone if one > limit]
        alone = [*searched, *accuracies_alone(self.uses, limit)]
        most = width_of(policy.job.metric.accuracies)
        found = measured_threshold(alone, most, policy.allowed.runs or THRESHOLD_RUNS)
        return replace(policy.allowed, threshold=found or 0.0)

    @functools.cached_property
    def collapse_limit(self) -> float:
        """The accuracy at or below which runs of the first protocol alone have collapsed."""
        return collapse_limit_of(self._judging_policy, self.uses)

    @property
    def collapsed(self) -> list[float]:
        """What the uses reached that ended in the first protocol alone, and collapsed."""
        alone, limit = accuracies_alone(self.uses), self.collapse_limit
        return [one for one in alone if one <= limit]

    @property
    def stated_target(self) -> float | None:
        """The policy's target, unless it is that of a run that collapsed."""
        return stated_target(self.policy, self.collapse_limit)

    def held_to(self, allowed: AllowedLoss | None) -> JobHistory:
        """The job in which so much may be lost as a user says; None for what it has."""
        is_same = allowed is not None and allowed.runs == self.policy.allowed.runs > 0
        if allowed is None or is_same:
            return self
        job = replace(self, policy=with_allowed(self.policy, allowed))
        return job._measured() if allowed.is_from_runs else job

    def _measured(self) -> JobHistory:
        return replace(self, policy=with_allowed(self.policy, self.allowed))

    def next_percent(self, expected_runs: int) -> float:
        """The switch of the next of so many runs: one worth trying, or the best that is known.

        Raises UserError as `threshold`, or where runs of the first protocol alone diverged.
        """
        decision = self._decision(expected_runs)
        return self.policy.switch_percent if decision is None else decision.switch_percent

    def is_trying(self, expected_runs: int) -> bool:
        """Whether the next of so many runs tries something, rather than what is known best."""
        decision = self._decision(expected_runs)
        return not (decision is None or isinstance(decision, Decided))

    def revision(self, expected_runs: int | None = None) -> Revision | None:
        """The revision that should replace the policy; None where it may stay.

        While runs that learn have something left to try, it stays. Where all runs keep to the
        policy (`expected_runs` is None) it stays until its switch has failed twice, as once may be
        bad luck. Raises UserError as `next_percent`.
        """
        here, failed = self.policy.switch_percent, self.kept.count(False)
        if expected_runs is None and failed < _LEAST_FAILED:
            return None
        answer = self._decision(expected_runs or 0)
        if not isinstance(answer, Decided):
            return None
        is_same = answer.switch_percent == self._point(here)
        # What nobody had tried has another reason once somebody has.
        if is_same and (
            self.policy.promise.reason != UNTRIED_REASON or answer.promise.reason == UNTRIED_REASON
        ):
            return None
        before = self.expected(here)
        promise = Promise() if before is None else before.promise
        return Revision(
            self.policy.version,
            self.policy.protocols.first_protocol,
            here,
            len(self.kept),
            failed,
            promise.expected_time,
            promise.delivered_share,
            answer,
        )

    def expected(self, percent: float) -> Decided | None:
        return self._assessment().expected(self._point(percent))

    def answer(self) -> Decided | None:
        return self._assessment().standing_answer()

    def _decision(self, expected_runs: int) -> Decision | None:
        """The next switch to try, or the answer if nothing is left to try; None without either."""
        left = max(0, expected_runs - len(self.uses))
        assessment = self._assessment(left)
        return assessment.decision() if left else assessment.standing_answer()

    def _assessment(self, runs_left: int = 0) -> Assessment:
        left = runs_left if self.policy.guarded else None
        return Assessment(self.strategy(), self.observations, left)

    @functools.cached_property
    def observations(self) -> list[Observation]:
        """The runs that the policy rests on, and all uses, at the points of the strategy."""
        return [replace(run, switch_percent=self._point(run.switch_percent)) for run in self._runs]

    def _point(self, percent: float) -> float:
        """The switch point of the strategy that is the same step of the job."""
        step_of = steps_of(self.policy.job, self.policy.protocols.first_protocol)
        return self._points[step_of(percent)]

    @functools.cached_property
    def _points(self) -> dict[int, float]:
        """The usual switch points and those of its runs by their step; each step has one."""
        usual, policy = AdaptiveStrategy(halvings=6).with_momentum(self._rule), self.policy
        tried = (run.switch_percent for run in self._runs)
        every = sorted({*usual.grid(), *tried, policy.switch_percent})
        step_of = steps_of(policy.job, policy.protocols.first_protocol)
        distinct = replace(usual, switch_points=tuple(every)).distinct(step_of)
        return {step_of(percent): percent for percent in distinct.grid()}

    @functools.cached_property
    def _runs(self) -> list[Observation]:
        runs = [
            Observation(
                run.switch_percent, run.converged_accuracy, run.diverged, number, run.replicate
            )
            for number, run in enumerate(self.policy.evidence)
        ]
        for number, use in enumerate(self.uses):
            accuracy, diverged = use.result.converged_accuracy or 0.0, bool(use.result.diverged)
            percent = use.held_percent
            if diverged:
                percent = shown_percent(percent, use.job.first_protocol, use.phases)
            second = self.policy.protocols.second_protocol
            held = Observation(percent, accuracy, diverged, cost=cost_of(use, second))
            tried = tried_switches(use.failed_with(second), self.policy.job.total_worker_steps)
            lessons = lessons_of(held, number, use.seed or 0, tried)
            # What held is a lesson of another pair where a run has fallen back to that.
            is_own = percent >= BASELINE_PERCENT or use.is_with(self.policy.protocols)
            runs += lessons if is_own else lessons[:-1]
        limit = self.collapse_limit
        runs = [
            run
            for run in runs
            if run.switch_percent < BASELINE_PERCENT or run.diverged or run.accuracy > limit
        ]
        return [*runs, *self.unrecorded]

    def strategy(self) -> AdaptiveStrategy:
        """The strategy of a search for this job, over all switch points of its runs so far."""
        policy, experience = self.policy, self.experience()
        usual = AdaptiveStrategy(halvings=6).with_momentum(self._rule)
        known_runs = policy.band.runs if policy.band is not None else 0
        has_baseline = any(
            run.switch_percent == BASELINE_PERCENT and not run.diverged for run in self.observations
        )
        allowed = self.allowed
        if allowed.is_known:  # no run is asked for to measure it
            allowed = AllowedLoss(allowed.threshold)
        return replace(
            usual.with_allowed(allowed),
            guarded=policy.guarded,
            goes_back=self.goes_back,
            min_kept_share=policy.min_kept_share or usual.min_kept_share,
            share_prefix=False,
            early_stop=False,
            switch_points=tuple(self._points.values()),
            target_accuracy=None if has_baseline else self.stated_target,
            target_runs=known_runs or _USUAL_TARGET_RUNS,
            accuracy_range=policy.job.metric.accuracies,
            bearing=() if experience is None else experience.tolerance,
        )

    def tolerance(self) -> tuple[tuple[float, float], ...]:
        """Before the first run: switch points, and the share of jobs that tolerate each."""
        from syncswitch.searcher.strategies.adaptive.guesses import experience_of

        experience = self.experience() or experience_of(usual_prior(self._rule), ())
        return tuple((percent, experience.share(percent)) for percent, _ in experience.tolerance)

    def tolerance_likelihood(self) -> Floats:
        """What its runs say of how early such jobs tolerate a switch, by usual switch point."""
        usual = replace(self.strategy(), switch_points=AdaptiveStrategy().switch_points, bearing=())
        return Assessment(usual, self.observations, 0).tolerance_likelihood()

    def band(self, curves: Mapping[int, Sequence[Evaluation]]) -> Band | None:
        """The band that the next run is compared with; `curves` are those of the uses.

        Where each worker keeps its own momentum, runs with a switch tell of the target, too.
        """
        band, goal = self._measured_band(curves), self.goal
        if band is None or goal is None or not (goal.runs and goal.threshold):
            return band
        held_to = (goal.accuracy, goal.margin)
        if self._rule in OWN_RULES:
            held_to = self._assessment().target() or held_to
        return BelievedBand(held_to[0], band.threshold, band.runs, band.curve, held_to[1])

    def _measured_band(self, curves: Mapping[int, Sequence[Evaluation]]) -> Band | None:
        """The band of a policy, with the target of all runs so far.

        The curve stays that of the search where there was one.
        """
        own, goal, threshold = self.policy.band, self.goal, self.threshold
        if not threshold:
            # A target alone would be held against every run to the last digit.
            return None if own is None else Band(None, 0.0)
        if goal is None and self.policy.target_accuracy is not None:
            return Band(None, threshold)  # it was that of a run that collapsed
        if goal is None or not accuracies_alone(self.uses, self.collapse_limit):
            return own
        if own is not None and own.target_accuracy is not None and self.policy.evidence:
            return replace(own, target_accuracy=goal.accuracy)
        alone = (
            use.trial_id
            for use in self.uses
            if is_alone(use) and (use.result.converged_accuracy or 0.0) > self.collapse_limit
        )
        measured = [curves[number] for number in alone if number in curves]
        return measured_band(goal.accuracy, threshold, measured)

    def with_measured_threshold(self) -> TimingPolicy | None:
        """The version to publish once the first uses have measured its threshold; else None."""
        measured = self._measured().policy
        if measured.allowed == self.policy.allowed:
            return None
        return self._new_version(allowed=measured.allowed, band=measured.band)

    def with_allowed(self, allowed: AllowedLoss) -> TimingPolicy | None:
        """The version to publish where a user allows another loss; None where it has that."""
        job = self.held_to(allowed)
        answer = None if job.policy == self.policy else job.answer()
        return None if answer is None else job._draft(answer)

    def with_measured_target(
        self, curves: Mapping[int, Sequence[Evaluation]]
    ) -> TimingPolicy | None:
        """The version to publish once a use has measured the target of a policy without one.

        `curves` are those of the uses. None while none has.
        """
        answer = self.answer()
        if answer is None or answer.target_accuracy is None:
            return None
        draft = self._draft(answer)
        alone = [
            use.times.training_seconds
            for use in self.uses
            if use.switch_percent == BASELINE_PERCENT and not use.result.diverged
        ]
        measured = replace(draft.measured, baseline_seconds=mean_of(alone))
        return replace(draft, band=self._measured_band(curves), measured=measured)

    def _draft(self, decided: Decided) -> TimingPolicy:
        band = self.policy.band
        percent = decided.switch_percent
        own = [use for use in self.uses if use.is_with(self.policy.protocols)]
        sound = [use for use in own if not use.result.diverged]
        held = (use for use in sound if use.guard.held_percent == percent)
        accuracies = [use.result.converged_accuracy for use in held]
        seconds = [use.times.training_seconds for use in sound if use.switch_percent == percent]
        for run in self.policy.evidence:
            if run.switch_percent == percent and not run.diverged:
                accuracies.append(run.converged_accuracy)
                seconds.append(run.training_seconds)
        if band is not None and decided.target_accuracy is None:
            band = Band(None, band.threshold)
        elif band is not None:
            band = replace(band, target_accuracy=decided.target_accuracy)
        return self._new_version(
            switch_percent=percent,
            target_accuracy=decided.target_accuracy,
            promise=decided.promise,
            measured=Measured(
                mean_accuracy=mean_of(accuracies),
                training_seconds=mean_of(seconds),
                baseline_seconds=self.policy.measured.baseline_seconds,
            ),
            band=band,
        )

    def draft(self, revision: Revision) -> TimingPolicy:
        answer = revision.answer
        if self.policy.promise.reason != UNTRIED_REASON:
            answer = replace(answer, promise=replace(answer.promise, reason=revision.why))
        return self._draft(answer)

    def _new_version(self, **changes: Any) -> TimingPolicy:
        policy = self.policy
        return replace(
            policy,
            study=f"{first_study(policy.job.fingerprint, policy.protocols)}-{policy.version}",
            created_at=datetime.now(timezone.utc).isoformat(),
            software=software_versions(),
            **changes,
        )


def with_allowed(policy: TimingPolicy, allowed: AllowedLoss) -> TimingPolicy:
    """A policy that allows another loss; one that has yet to measure it has no target."""
    band, target = policy.band, policy.target_accuracy
    if not allowed.is_known:
        band, target = None if band is None else Band(None, 0.0), None
    elif band is not None:
        band = replace(band, threshold=allowed.threshold)
    return replace(policy, allowed=allowed, target_accuracy=target, band=band)


def blank_policy(identity: ScheduledJob) -> TimingPolicy:
    """The policy of a job of which no run was made, and nothing was decided."""
    policy = unmeasured_policy(identity, BASELINE_PERCENT)
    return replace(
        policy,
        allowed=policy.allowed if policy.allowed.is_known else MEASURED,
        software=software_versions(),
        promise=Promise(reason=UNTRIED_REASON),
    )


def usual_prior(momentum: str | None) -> Prior:
    """That of the usual switch points; shares go by thresholds, so whose they are is the same."""
    from syncswitch.searcher.strategies.adaptive.guesses import Prior

    usual = AdaptiveStrategy(halvings=6).with_momentum(momentum)
    return Prior(
        usual.grid(),
        usual.threshold,
        owns_momentum=usual.owns_momentum,
        owns_optimizer=usual.owns_optimizer,
    )
