"""Learning from a job's trainings: the switch of the next one, and the policies that follow.

The first run of a job without a policy switches where the time of all runs to come is least, by
what jobs like it show, and is published as a policy. The runs after it are recorded as uses of that
policy, whatever their switch. Where they show that another switch takes less time, or have measured
what the first protocol alone reaches, that is published as the next version.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.search.explanation import Explanation, explain
from syncswitch.searcher.search.observations import cost_of, read_observations
from syncswitch.searcher.search.plan import steps_of
from syncswitch.searcher.search.policy_words import drift_text, spread_text
from syncswitch.searcher.search.recorded import measured_band
from syncswitch.searcher.strategies.adaptive.strategy import (
    UNTRIED_REASON,
    AdaptiveStrategy,
    Assessment,
)
from syncswitch.searcher.strategies.base import Decided, Decision
from syncswitch.searcher.strategies.baseline import THRESHOLD_RUNS, AllowedLoss, measured_threshold
from syncswitch.searcher.strategies.observation import Observation, TrialCost, width_of
from syncswitch.searcher.strategies.planner import course_of
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.searcher.words import measured_threshold_text
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import Command, Run, Said, Set, UserError
from syncswitch.storage.metrics import mean_of, seconds_at_pace
from syncswitch.storage.policies.registry import PolicyEntry, PolicyRegistry, current_ones
from syncswitch.storage.policies.unmeasured import LEARNT, first_study, unmeasured_policy
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.guard import Band, BelievedBand, FailedSwitch, Target
from syncswitch.storage.records.job import (
    OWN_RULES,
    Protocols,
    ScheduledJob,
    SearchInfo,
    protocol_text,
)
from syncswitch.storage.records.policy import Measured, Promise, TimingPolicy, whole_use
from syncswitch.storage.records.trial import BASELINE_PERCENT, Evaluation, PhaseRecord, TrialRecord
from syncswitch.storage.trials.possible import check_use
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.trials.workloads import register_workload
from syncswitch.storage.uses.store import chosen_phases, uses
from syncswitch.storage.uses.summary import (
    accuracies_alone,
    collapse_limit_of,
    is_alone,
    stated_target,
    switches_kept,
    target_of,
    use_summary,
)

if TYPE_CHECKING:
    from syncswitch.searcher.strategies.adaptive.guesses import Experience, Floats, Prior

# Replicates of uses begin here, beyond those of any search.
_FIRST_REPLICATE = 1_000_000


def lessons_of(
    use: Observation, number: int, seed: int, failed: Iterable[tuple[float, float | None]] = ()
) -> list[Observation]:
    """One observation of each switch that failed in a run, and one of the switch that held.

    A run goes on from a failed switch as if it had never been, so the accuracy of `use` is one of
    the last switch; if it is alarmed, that failed as well, and it is one of the first protocol
    alone. Of the switches that `failed` before, those that trained to their end have an accuracy.

    With the first protocol alone the same seed gives the same run, which counts once; what comes
    after a switch differs from run to run. `number` counts the uses from 0.
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
    return [lessons[0], *(replace(lesson, cost=None) for lesson in lessons[1:])]


def _shown_percent(
    percent: float, first_protocol: str, diverged_in: Sequence[PhaseRecord]
) -> float:
    """The switch that a run is a lesson of: one that diverged before it shows nothing of it."""
    is_before = percent > 0 and {one.protocol for one in diverged_in} == {first_protocol}
    return BASELINE_PERCENT if is_before else percent


def _tried(failed: Iterable[FailedSwitch], steps: int) -> list[tuple[float, float | None]]:
    return [
        (switch.switch_percent, switch.accuracy if switch.worker_step >= steps else None)
        for switch in failed
    ]


_USUAL_TARGET_RUNS = 5
_MOST_JOBS = 30
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
class UsedJob:
    """A version of a policy, and the uses of all its versions.

    Attributes:
        uses: The uses in the order in which they were recorded, without disturbed ones.
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
    def kept(self) -> list[bool]:
        """Whether the switch kept the accuracy, for each use of this version with its switch."""
        return switches_kept(self.policy, self.uses, self.target)

    @property
    def target(self) -> Target | None:
        """What its runs are held to; None until it is measured."""
        return target_of(replace(self.policy, threshold=self.threshold), self.uses)

    @property
    def threshold(self) -> float:
        """beta: the policy's, or the one measured in its first uses; 0 while these are too few.

        Raises UserError if these all measured the same, so that there is no chance to tell.
        """
        policy = self.policy
        if policy.threshold:
            return policy.threshold
        limit = collapse_limit_of(policy, self.uses)
        searched = [one for one in policy.accuracies_alone if one > limit]
        alone = [*searched, *accuracies_alone(self.uses, limit)]
        most = width_of(policy.job.metric.accuracies)
        return measured_threshold(alone, most, policy.threshold_runs or THRESHOLD_RUNS) or 0.0

    @functools.cached_property
    def collapse_limit(self) -> float:
        """The accuracy at or below which runs of the first protocol alone have collapsed."""
        return collapse_limit_of(replace(self.policy, threshold=self.threshold), self.uses)

    @property
    def collapsed(self) -> list[float]:
        """What the uses reached that ended in the first protocol alone, and collapsed."""
        alone, limit = accuracies_alone(self.uses), self.collapse_limit
        return [one for one in alone if one <= limit]

    @property
    def stated_target(self) -> float | None:
        """The policy's target, unless it is that of a run that collapsed."""
        return stated_target(self.policy, self.collapse_limit)

    def held_to(self, allowed: AllowedLoss | None) -> UsedJob:
        """The job in which so much may be lost as a user says; None for what it has."""
        policy = self.policy
        if allowed is None or allowed.runs == policy.threshold_runs > 0:
            return self
        job = replace(self, policy=_with_threshold(policy, allowed.threshold, allowed.runs))
        return job._measured() if allowed.runs else job

    def _measured(self) -> UsedJob:
        runs = self.policy.threshold_runs
        return replace(self, policy=_with_threshold(self.policy, self.threshold, runs))

    def spread_words(self) -> list[str]:
        """Says that runs of the first protocol alone differ too much, where the last one is new.

        Of those that collapsed, as the last run shows, it says that.
        """
        policy, target = self.policy, self.target
        if not self.uses:
            return []
        first, metric = protocol_text(policy.protocols.first_protocol), policy.job.metric
        last, collapsed = self.uses[-1], self.collapsed
        is_last_alone = is_alone(last)
        if is_last_alone and last.result.converged_accuracy in collapsed:
            which, collapsed = f"this run of {first} alone", [last.result.converged_accuracy]
        else:
            which = f"an earlier run of {first} alone"
            before = replace(self, uses=self.uses[:-1]).collapsed
            collapsed = [one for one in collapsed if one not in before]
        if collapsed:
            is_no_target = "is no target; another one has to measure it"
            if target is not None:
                is_no_target = f"is no part of the target of {metric.text(target.accuracy)}"
            return [
                f"{which} collapsed: it ended at {metric.text(one)}, far from the other runs of"
                f" this job, and {is_no_target}"
                for one in collapsed
            ]
        if target is None or not is_last_alone:
            return []
        said = spread_text(target, policy.threshold, metric, first)
        return [] if said is None else [said]

    def diverged_words(self, expected_runs: int | None) -> str:
        """Says what the last run, which diverged, means for the next one, and how that trains.

        It learns if `expected_runs` are given. Raises UserError as `next_percent`.
        """
        last, policy = self.uses[-1], self.policy
        first, second = map(
            protocol_text, (policy.protocols.first_protocol, policy.protocols.second_protocol)
        )
        held = _shown_percent(last.held_percent, policy.protocols.first_protocol, last.phases)
        shown = f"{first} alone" if held >= BASELINE_PERCENT else f"a switch at {held:g} %"
        percent = policy.switch_percent
        if expected_runs is not None:
            percent = self.next_percent(expected_runs)
        then = f"switches to {second} at {percent:g} %"
        if percent >= BASELINE_PERCENT:
            then = f"uses {first} alone"
        return f"this run is recorded as one that diverged with {shown}; the next one {then}"

    def next_percent(self, expected_runs: int) -> float:
        """The switch of the next of so many runs: one worth trying, or the best that is known.

        Raises UserError as `threshold`, or where runs of the first protocol alone diverged.
        """
        decision = self._decision(expected_runs)
        return self.policy.switch_percent if decision is None else decision.switch_percent

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
                percent = _shown_percent(percent, use.job.first_protocol, use.phases)
            held = Observation(percent, accuracy, diverged, cost=cost_of(use))
            tried = _tried(use.failed, self.policy.job.total_worker_steps)
            runs += lessons_of(held, number, use.seed or 0, tried)
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
        threshold = self.threshold
        if not threshold:
            usual = usual.without_threshold(policy.threshold_runs)
        return replace(
            usual,
            threshold=threshold,
            guarded=policy.guarded,
            goes_back=self.goes_back,
            min_kept_share=policy.min_kept_share or usual.min_kept_share,
            share_prefix=False,
            early_stop=False,
            switch_points=tuple(self._points.values()),
            target_accuracy=None if has_baseline else self.stated_target,
            target_runs=known_runs or _USUAL_TARGET_RUNS,
            accuracy_range=policy.job.metric.accuracies,
            bearing=() if experience is None else experience.bearing,
        )

    def bearing(self) -> tuple[tuple[float, float], ...]:
        """Switch points, and the share of jobs that bear a switch there, before the first run."""
        from syncswitch.searcher.strategies.adaptive.guesses import experience_of

        experience = self.experience() or experience_of(_usual_prior(self._rule), ())
        return tuple((percent, experience.share(percent)) for percent, _ in experience.bearing)

    def bearing_likelihood(self) -> Floats:
        """What its runs say of how early such jobs bear a switch, at the usual switch points."""
        usual = replace(self.strategy(), switch_points=AdaptiveStrategy().switch_points, bearing=())
        return Assessment(usual, self.observations, 0).bearing_likelihood()

    def band(self, curves: Mapping[int, Sequence[Evaluation]]) -> Band | None:
        """The band that the next run is compared with; `curves` are those of the uses.

        Where each worker keeps its own momentum, runs with a switch tell of the target, too.
        """
        band, target = self._measured_band(curves), self.target
        if band is None or target is None or not (target.runs and self.threshold):
            return band
        held_to = (target.accuracy, target.margin(self.threshold))
        if self._rule in OWN_RULES:
            held_to = self._assessment().target() or held_to
        return BelievedBand(held_to[0], band.threshold, band.runs, band.curve, held_to[1])

    def _measured_band(self, curves: Mapping[int, Sequence[Evaluation]]) -> Band | None:
        """The band of a policy, with the target of all runs so far.

        The curve stays that of the search where there was one.
        """
        own, target = self.policy.band, self.target
        if not self.threshold:
            # A target alone would be held against every run to the last digit.
            return None if own is None else Band(None, 0.0)
        if target is None and self.policy.target_accuracy is not None:
            return Band(None, self.threshold)  # it was that of a run that collapsed
        if target is None or not accuracies_alone(self.uses, self.collapse_limit):
            return own
        if own is not None and own.target_accuracy is not None and self.policy.evidence:
            return replace(own, target_accuracy=target.accuracy)
        alone = (
            use.trial_id
            for use in self.uses
            if is_alone(use) and (use.result.converged_accuracy or 0.0) > self.collapse_limit
        )
        measured = [curves[number] for number in alone if number in curves]
        return measured_band(target.accuracy, self.threshold, measured)

    def with_measured_threshold(self) -> TimingPolicy | None:
        """The version to publish once the first uses have measured its threshold; else None."""
        measured = self._measured().policy
        if measured.threshold == self.policy.threshold:
            return None
        return self._new_version(threshold=measured.threshold, band=measured.band)

    def with_threshold(self, allowed: AllowedLoss) -> TimingPolicy | None:
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
        sound = [use for use in self.uses if not use.result.diverged]
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


@dataclass(frozen=True, slots=True)
class NextRun:
    """The switch of a training, and what its guard compares it with.

    Attributes:
        policy: The policy that it uses; None for a switch point of the user's own, and for the
            first run of a job that is learnt from its runs.
        band: What its guard compares it with; None without a guard.
        begins_from: The policy of simulated runs from which the first real one begins.
        learns: Whether what it measures decides where later runs switch.
        expected: What is expected of it while no target is measured; None where one is.
        runs_left: Trainings to come with this one, as far as it learns.
        own_jobs: See `Explanation`, as also for `threshold_runs`.
        goes_back: As in `UsedJob`.
        may_begin: Whether it may be the first recorded run of its job.
        known_from: The policy with another second protocol from which it is known what the first
            one alone reaches; None where the policy itself says it, or nobody knows.
        candidates: As in `TrialSpec`.
    """

    policy: TimingPolicy | None
    switch_percent: float
    band: Band | None = None
    begins_from: TimingPolicy | None = None
    learns: bool = False
    expected: Decided | None = None
    runs_left: int = 1
    own_jobs: int = 0
    threshold_runs: int = 0
    goes_back: bool = True
    may_begin: bool = True
    known_from: TimingPolicy | None = None
    candidates: tuple[Protocols, ...] = ()


def next_run(
    database: Database,
    identity: ScheduledJob,
    expected_runs: int,
    goes_back: bool | None = None,
    allowed: AllowedLoss | None = None,
) -> NextRun:
    """Decides where the next training of a job switches, of which there are `expected_runs` in all.

    Where a user has allowed a loss, a policy with another one gets a new version. Raises UserError
    as `UsedJob.next_percent`.
    """
    policy = PolicyRegistry(database).current(identity.fingerprint, identity.protocols)
    begins_anew = policy or (allowed is not None and allowed.runs)
    known = None if policy else _known_alone(database, identity.fingerprint, identity.protocols)
    begin = None if begins_anew or known else simulated_policy(database, identity)
    if begin is not None:
        begun = _band_of(begin)
        if allowed is not None:
            begun = replace(begun, threshold=allowed.threshold)
        return NextRun(None, begin.switch_percent, begun, begin, learns=True)
    if policy is not None:
        job = used_job(database, policy, goes_back)
        own = None if allowed is None else job.with_threshold(allowed)
        if own is not None:
            published = PolicyRegistry(database).publish(own, replaces=policy.version)
            job = replace(job, policy=published)
        band = job.band(TrialStore(database).curves(identity.fingerprint, of_uses=True))
    else:
        job = _unused_job(database, identity, goes_back, known).held_to(allowed)
        band = job.policy.band
    percent = job.next_percent(expected_runs)
    is_measured = band is None or band.target_accuracy is not None
    experience = None if is_measured else job.experience()
    return NextRun(
        None if policy is None else job.policy,
        percent,
        band,
        learns=True,
        expected=None if is_measured else job.expected(percent),
        runs_left=max(1, expected_runs - len(job.uses)),
        own_jobs=0 if is_measured or experience is None else experience.jobs,
        threshold_runs=job.policy.threshold_runs,
        goes_back=job.goes_back,
        known_from=known,
    )


def _unused_job(
    database: Database,
    identity: ScheduledJob,
    goes_back: bool | None,
    known: TimingPolicy | None,
    lessons: Iterable[Observation] = (),
) -> UsedJob:
    """A job without a policy for these protocols, of which a first run may teach something.

    What its first protocol alone reaches is `known` from a policy with another second one, if any.
    """
    policy = unmeasured_policy(identity, BASELINE_PERCENT)
    blank = replace(
        policy,
        threshold_runs=0 if policy.threshold else THRESHOLD_RUNS,
        software=software_versions(),
        promise=Promise(reason=UNTRIED_REASON),
    )
    counted: tuple[StoredTrial, ...] = ()
    if known is not None:
        blank = _with_alone(blank, known)
        counted = _counted_uses(database, blank)
    experience = _experience_of_others(database, blank)
    return UsedJob(blank, counted, goes_back is not False, tuple(lessons), experience)


def _known_alone(database: Database, fingerprint: str, protocols: Protocols) -> TimingPolicy | None:
    """The newest policy of a job that tells what its first protocol alone reaches, if any."""
    for policy in PolicyRegistry(database).policies(workload=fingerprint):
        is_alike = policy.protocols.first_protocol == protocols.first_protocol
        if is_alike and policy.target_accuracy is not None and policy.threshold:
            return policy
    return None


def _with_alone(policy: TimingPolicy, known: TimingPolicy) -> TimingPolicy:
    """A policy without a target, with what another one tells of the first protocol alone."""
    alone = (run for run in known.evidence if run.switch_percent == BASELINE_PERCENT)
    seconds = known.measured.baseline_seconds
    return replace(
        policy,
        target_accuracy=known.target_accuracy,
        threshold=known.threshold,
        threshold_runs=known.threshold_runs,
        band=_band_of(known),
        measured=replace(policy.measured, baseline_seconds=seconds),
        evidence=(*policy.evidence, *alone),
    )


def simulated_policy(database: Database, identity: ScheduledJob) -> TimingPolicy | None:
    """The newest policy from which the first real run of a job may begin; None without one.

    It was found for the same job on a simulated cluster. The first protocol alone makes the same
    steps on a virtual clock as on a real one, so the accuracy that it reached there gives that run
    its target and band. Training times and the effect of stale gradients are learnt from real runs
    alone.
    """
    for entry in current_ones(PolicyRegistry(database).entries(workload=identity.name)):
        real = replace(entry.job, simulated_cluster=None)
        is_twin = real != entry.job and real.fingerprint == identity.fingerprint
        is_alike = is_twin and entry.policy.protocols == identity.protocols
        if is_alike and entry.policy.threshold:
            return entry.policy
    return None


def _with_threshold(policy: TimingPolicy, threshold: float, runs: int) -> TimingPolicy:
    """A policy with another threshold; one that has yet to measure it has no target."""
    band, target = policy.band, policy.target_accuracy
    if not threshold:
        band, target = None if band is None else Band(None, 0.0), None
    elif band is not None:
        band = replace(band, threshold=threshold)
    return replace(
        policy, threshold=threshold, threshold_runs=runs, target_accuracy=target, band=band
    )


def _band_of(policy: TimingPolicy) -> Band:
    return policy.band or Band(policy.target_accuracy, policy.threshold)


def first_policy(
    database: Database,
    identity: ScheduledJob,
    reference: str,
    record: TrialRecord,
    begins_from: TimingPolicy | None = None,
    goes_back: bool | None = None,
    allowed: AllowedLoss | None = None,
) -> TimingPolicy | None:
    """Publishes the first run of a job as its policy; None where it was cut short or disturbed.

    It has a target where the first protocol alone did the whole of it, or the rest after a failed
    switch. A run that began from a policy of simulated runs publishes the switch that held in it,
    with the target and band of that policy until the job's own runs replace them. One that diverged
    has shown no more than that. Raises FatalError where no run can have measured this.
    """
    is_disturbed = bool(record.spec.conditions.injections) and begins_from is None
    use = whole_use(unmeasured_policy(identity), "first", record)
    if use is None or is_disturbed:
        return None
    check_use(use)
    guard, began, accuracy = record.guard, record.spec.switch_percent, record.converged_accuracy
    held = began if guard is None or guard.held_percent is None else guard.held_percent
    steps, phases, diverged = identity.total_worker_steps, record.phases, record.diverged
    shown = _shown_percent(held, identity.first_protocol, phases if diverged else ())
    cost = TrialCost(
        paid_seconds=record.training_seconds,
        first_seconds=seconds_at_pace(phases, identity.first_protocol, steps),
        second_seconds=seconds_at_pace(phases, identity.second_protocol, steps),
    )
    tried = _tried(() if guard is None else guard.failed, steps)
    trained = Observation(shown, accuracy, diverged, cost=cost)
    lessons = lessons_of(trained, 0, record.spec.seed, tried)
    before = record.spec.band or begins_from
    if allowed is None and before is not None and before.threshold:
        allowed = AllowedLoss(before.threshold)
    known = _known_alone(database, identity.fingerprint, identity.protocols)
    job = _unused_job(database, identity, goes_back, known, lessons).held_to(allowed)
    blank, seconds = job.policy, record.training_seconds
    percent, promise, band = blank.switch_percent, blank.promise, blank.band
    target = blank.target_accuracy
    if target is None and held == BASELINE_PERCENT and not diverged:
        target = accuracy
        if blank.threshold:
            band = measured_band(target, blank.threshold, [record.evaluations])
    if begins_from is not None:
        percent = begins_from.switch_percent if diverged else held
        target = begins_from.target_accuracy
        reason = (
            f"begun from version {begins_from.version} for {begins_from.job.workers}"
            f" simulated workers, a switch at {begins_from.switch_percent:g} %"
        )
        promise = replace(promise, reason=reason)
        band = replace(_band_of(begins_from), threshold=blank.threshold)
    elif (answer := job.answer()) is not None:
        percent, target, promise = answer.switch_percent, answer.target_accuracy, answer.promise
    policy = replace(
        blank,
        switch_percent=percent,
        target_accuracy=target,
        promise=promise,
        band=band,
        measured=Measured(
            mean_accuracy=accuracy if held == percent else None,
            training_seconds=seconds if began == held == percent else None,
            baseline_seconds=seconds
            if began == BASELINE_PERCENT
            else blank.measured.baseline_seconds,
        )
        if not diverged
        else Measured(),
    )
    register_workload(database, identity.job, reference)
    return PolicyRegistry(database).publish(policy)


def revise(database: Database, policy: TimingPolicy) -> tuple[Revision, TimingPolicy] | None:
    """Publishes another switch as a new version, if the uses of a policy call for it.

    A version is revised once: whoever else does so at the same moment gets the same new version.
    `current` points at it, other aliases stay. None where the policy may stay, or is not `current`.
    Raises PolicyError if `current` was moved meanwhile.
    """
    if not _is_current(database, policy):
        return None
    job = used_job(database, policy)
    revision = job.revision()
    if revision is None:
        return None
    draft = job.draft(revision)
    return revision, PolicyRegistry(database).publish(draft, replaces=policy.version)


def _is_current(database: Database, policy: TimingPolicy) -> bool:
    current = PolicyRegistry(database).current(policy.job.fingerprint, policy.protocols)
    return current is not None and current.version == policy.version


def used_job(database: Database, policy: TimingPolicy, goes_back: bool | None = None) -> UsedJob:
    """Reads a version together with the uses of all versions.

    `goes_back` is whether a run that fails goes back to its switch; None to take that from the
    options of the job's searches and from the cost of its failed switches.
    """
    fingerprint = policy.job.fingerprint
    counted = _counted_uses(database, policy)
    if policy.target_accuracy is None:
        known = _known_alone(database, fingerprint, policy.protocols)
        policy = policy if known is None else _with_alone(policy, known)
    if goes_back is None:
        first_failures = (use.failed[0] for use in counted if use.failed)
        has_begun_anew = any(
            failed.switch_percent > 0 and failed.lost_seconds >= failed.elapsed_seconds > 0
            for failed in first_failures
        )
        searches = TrialStore(database).searches(workload=fingerprint)
        told = [search.options.get("goes_back", True) for search in searches]
        goes_back = all(told) and not has_begun_anew
    experience = _experience_of_others(database, policy)
    return UsedJob(policy, counted, goes_back, experience=experience)


def as_known_now(database: Database, policy: TimingPolicy) -> TimingPolicy:
    """A version with what all runs so far show: target, shares, time and certainty."""
    job = used_job(database, policy)
    if not job.uses:
        return policy
    target, expected, stated = None, None, policy.target_accuracy
    with suppress(UserError):  # nothing to compare with
        stated = job.stated_target
        target, expected = job.target, job.expected(policy.switch_percent)
    return replace(
        policy,
        target_accuracy=stated if target is None else target.accuracy,
        promise=policy.promise
        if expected is None
        else replace(expected.promise, reason=policy.promise.reason),
    )


def _counted_uses(database: Database, policy: TimingPolicy) -> tuple[StoredTrial, ...]:
    every = uses(database, policy.job.fingerprint, policy.protocols)
    return tuple(use for use in every if not use.under.injections)


def _experience_of_others(
    database: Database, policy: TimingPolicy
) -> Callable[[], Experience | None]:
    """Reads what the other jobs of a database say of how early such a job bears a switch.

    They count with the same protocols, by their current policy and its uses; of many the newest.
    It is read at the first call, also for copies of a job.
    """
    return functools.cache(lambda: _read_experience(database, policy))


def _read_experience(database: Database, policy: TimingPolicy) -> Experience | None:
    from syncswitch.searcher.strategies.adaptive.guesses import experience_of

    likelihoods = []
    others = [
        entry
        for entry in current_ones(PolicyRegistry(database).entries())
        if entry.policy.job.fingerprint != policy.job.fingerprint
        and entry.policy.protocols == policy.protocols
    ]
    for entry in others[:_MOST_JOBS]:
        job = UsedJob(entry.policy, _counted_uses(database, entry.policy))
        with suppress(UserError):  # nothing to compare with
            if job.threshold and job.observations:
                likelihoods.append(job.bearing_likelihood())
    if not likelihoods:
        return None
    return experience_of(_usual_prior(policy.protocols.momentum_after_switch), likelihoods)


def _usual_prior(momentum: str | None) -> Prior:
    """That of the usual switch points; shares go by thresholds, so whose they are is the same."""
    from syncswitch.searcher.strategies.adaptive.guesses import Prior

    usual = AdaptiveStrategy(halvings=6).with_momentum(momentum)
    return Prior(
        usual.grid(),
        usual.threshold,
        owns_momentum=usual.owns_momentum,
        owns_optimizer=usual.owns_optimizer,
    )


def _stored_version(database: Database, policy: TimingPolicy) -> TimingPolicy | None:
    """The version of this database that is the same as a policy of a file; None without one."""
    for version in PolicyRegistry(database).policies(workload=policy.job.fingerprint):
        if (version.study, version.created_at) == (policy.study, policy.created_at):
            return version
    return None


def band(database: Database, policy: TimingPolicy) -> Band | None:
    """The band for the next run with a policy, from its search and all uses since."""
    stored = _stored_version(database, policy)
    if stored is None:
        return band_alone(policy)
    curves = TrialStore(database).curves(stored.job.fingerprint, of_uses=True)
    return used_job(database, stored).band(curves)


def band_alone(policy: TimingPolicy) -> Band | None:
    """The band for the next run with a policy of a file, from its search."""
    return UsedJob(policy, ()).band({})


def after_use(
    database: Database,
    policy: TimingPolicy,
    expected_runs: int | None = None,
    goes_back: bool | None = None,
) -> list[Said]:
    """Reviews a policy after one more recorded use; returns sentences without their full stops.

    Where another switch takes less time and runs learn, it is published, once `expected_runs`
    trainings leave nothing to try. Where they keep to the policy, people are told how to publish
    it. For `goes_back` see `used_job`.
    """
    registry, stored = PolicyRegistry(database), _stored_version(database, policy)
    if stored is None:
        return []
    job = used_job(database, stored, goes_back)
    drift = use_summary(stored, job.uses).drift
    words: list[Said] = [] if drift is None else [drift_text(drift)]
    words += job.spread_words()
    if not _is_current(database, stored):
        return words
    if job.uses and job.uses[-1].result.diverged:
        try:
            words.append(job.diverged_words(expected_runs))
        except UserError as error:
            return [*words, error]
    first, metric = protocol_text(stored.protocols.first_protocol), stored.job.metric
    measured, had_target = None, job.stated_target is not None
    if expected_runs is not None:
        measured = job.with_measured_threshold()
    if measured is not None:
        job = replace(job, policy=measured)
        words.append(
            measured_threshold_text(measured.threshold, metric, first, measured.threshold_runs)
        )
    if expected_runs is not None and not had_target:
        curves = TrialStore(database).curves(stored.job.fingerprint, of_uses=True)
        measured = job.with_measured_target(curves) or measured
    if measured is not None:
        stored = registry.publish(measured, replaces=stored.version)
        job = replace(job, policy=stored)
        if not had_target and stored.target_accuracy is not None:
            target = metric.text(stored.target_accuracy)
            words.append(
                f"the target is measured: {first} alone reached {metric.with_article} of {target};"
                f" it is in version {stored.version}, and later runs are compared with it"
            )
    revision = job.revision(expected_runs)
    if revision is None:
        return words
    if expected_runs is None:
        given: list[str | Set] = [stored.job.workload, Set("workers", stored.job.workers)]
        workload = registry.workload(stored.job.fingerprint)
        if workload is not None and workload.job.simulated_cluster is not None:
            given.append(Set("cluster", "simulated"))
        publish = Run(Command.REVISE, tuple(given), "publish it with:")
        return [*words, UserError(revision.why, remedy=publish)]
    new = registry.publish(job.draft(revision), replaces=stored.version)
    switch = f"a switch at {new.switch_percent:g} %"
    if new.switch_percent == BASELINE_PERCENT:
        switch = f"{protocol_text(new.protocols.first_protocol)} alone"
    return [*words, f"{revision.why}: from now on version {new.version}, {switch}"]


def policy_explained(database: Database, entry: PolicyEntry) -> Explanation:
    """Explains a policy by its search; without one, by its evidence and uses.

    Raises UserError if the runs leave nothing to compare with.
    """
    policy, store = entry.policy, TrialStore(database)
    for search in store.searches(workload=policy.job.fingerprint):
        if search.study == policy.study and entry.imported_at is None:
            rows = store.numbered(search.study)
            runs = read_observations(database, search.study, rows, policy.protocols)
            return search_explained(replace(search, protocols=policy.protocols), runs)
    job = used_job(database, policy)
    is_learnt = policy.study.startswith(LEARNT) and not policy.evidence
    experience = job.experience()
    return replace(
        explain(job.strategy(), job.observations),
        threshold_runs=policy.threshold_runs,
        own_jobs=0 if experience is None else experience.jobs,
        bearing=job.bearing() if is_learnt else (),
        chosen=tuple(chosen_phases(database, policy)),
    )


def search_explained(search: SearchInfo, finished: Iterable[Observation]) -> Explanation:
    """Explains a search by its runs so far, without speculative ones."""
    strategy = stored_strategy(search)
    return explain(strategy, course_of(strategy, finished).runs)
