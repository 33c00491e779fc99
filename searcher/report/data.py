"""The contents of a report on one job, read once: frozen values, and what follows from them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property

from syncswitch.searcher.learning.reading import policy_explained, search_explained
from syncswitch.searcher.search.explanation import Explanation
from syncswitch.searcher.search.observations import read_observations, total_cost
from syncswitch.searcher.selection import Selection, none_found, only_job
from syncswitch.searcher.speed_up import Estimate, SpeedUp, known_mean, speed_up_of
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import course_of
from syncswitch.searcher.strategies.registry import STRATEGIES, stored_strategy
from syncswitch.storage.database.engine import Database, opened
from syncswitch.storage.database.inspection import shown
from syncswitch.storage.errors import UserError, leave_out
from syncswitch.storage.policies.registry import CURRENT, PolicyEntry, PolicyRegistry
from syncswitch.storage.queries.policies import PolicyUseFacts, facts_of
from syncswitch.storage.queries.search_costs import SearchCost
from syncswitch.storage.records.flat import flat, nested
from syncswitch.storage.records.goal import Goal
from syncswitch.storage.records.job import (
    Job,
    Protocols,
    RunConditions,
    ScheduledJob,
    SearchInfo,
    protocol_text,
)
from syncswitch.storage.records.metric import USUAL_THRESHOLD
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.store import uses
from syncswitch.storage.uses.summary import (
    UseSummary,
    collapse_limit_of,
    stated_target,
    use_summary,
)
from syncswitch.trainers.replay import RecordedRun, whole_runs


@dataclass(frozen=True, slots=True)
class PathStep:
    """One run of a search, and what the search knew after it.

    Attributes:
        run: The run, as the strategy sees it.
        accepted: Whether the strategy then accepted the run's switch point; None while undecided.
        lower_percent: The highest switch point known to switch too early, or the lower end.
        upper_percent: The lowest switch point known to be acceptable.
        is_needed: Whether the search asked for the run; otherwise it is speculative.
    """

    run: Observation
    accepted: bool | None
    lower_percent: float
    upper_percent: float
    is_needed: bool

    @property
    def kind(self) -> str:
        """The part it played: `target`, `accepted`, `rejected`, `open` or `speculative`."""
        if not self.is_needed:
            return "speculative"
        if self.run.switch_percent >= BASELINE_PERCENT:
            return "target"
        return {True: "accepted", False: "rejected", None: "open"}[self.accepted]


def _path(
    strategy: Strategy, finished: Sequence[Observation]
) -> tuple[tuple[PathStep, ...], float | None, UserError | None]:
    """The course of a search: its steps, the target as far as it is known, and why it is stuck.

    The runs stand in the order in which the search asked for them, then the speculative ones.
    """
    target, trouble = strategy.target_accuracy, None
    try:
        needed = course_of(strategy, finished).runs
        target = strategy.progress(needed).target_accuracy
    except UserError as error:
        needed, trouble = tuple(finished), error
    asked = {run.trial_number for run in needed}
    in_advance = [run for run in finished if run.trial_number not in asked]
    steps = []
    for number, run in enumerate((*needed, *in_advance), 1):
        accepted, bracket = None, (strategy.lowest_percent, strategy.highest_percent)
        # Where the baseline diverged, nothing will ever be known.
        with contextlib.suppress(UserError):
            progress = strategy.progress(needed[:number])
            verdicts = {one.switch_percent: one.accepted for one in progress.summaries}
            accepted = verdicts.get(run.switch_percent)
            bracket = progress.lower_percent, progress.upper_percent
        steps.append(PathStep(run, accepted, *bracket, is_needed=number <= len(needed)))
    return tuple(steps), target, trouble


# A search that takes more trainings than this to pay for itself never does.
_LONGEST_PAYBACK = 10_000


@dataclass(frozen=True, slots=True)
class ReportRun:
    """One training run: of a search, imported, or a later run with the policy.

    Attributes:
        trial: Its row in the database; a later run counts for the switch point that held.
        whole: The run from its first worker-step on, including what a fork inherited; None where
            the run is not complete or its beginning is lost.
    """

    trial: StoredTrial
    whole: RecordedRun | None

    @property
    def seconds(self) -> float | None:
        """Training time of the whole run; None where unknown, or where switches failed in it."""
        return None if self.trial.failed else self.trial.times.whole_run_seconds

    @property
    def is_complete(self) -> bool:
        """Whether it measured something."""
        return self.trial.state == TrialState.COMPLETE

    @property
    def is_sound(self) -> bool:
        """Whether it is complete and did not diverge."""
        return self.is_complete and not self.trial.result.diverged


@dataclass(frozen=True, slots=True)
class SwitchPoint:
    """The runs of one switch point that are compared with others, diverged ones included."""

    percent: float
    runs: tuple[ReportRun, ...]

    @property
    def accuracy(self) -> Estimate | None:
        """Mean converged accuracy with its 95 % interval; None where every run diverged."""
        return known_mean(run.trial.result.converged_accuracy for run in self.runs if run.is_sound)

    @property
    def seconds(self) -> Estimate | None:
        """Mean training time, likewise; that of the whole run for one that was stopped early."""
        return known_mean(run.seconds for run in self.runs)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The goal of all switch points, and its origin in words."""

    goal: Goal
    origin: str


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows.

    Attributes:
        namesakes: The simulated jobs of the same name to which this real one was preferred.
        reference: The reference of its workload in the database.
        place: The database, without its password.
        policy: The policy that is shown; None where there is none yet.
        versions: All versions of the policy, newest first.
        search: The one that found the policy, else the newest; None where there is none.
        trouble: Why the search has no answer; None where nothing is wrong.
        conditions: Those of the runs that the figures compare.
        runs: All runs of searches and imported ones, in the order in which they were added.
        later_runs: The later runs with the policy, likewise.
        path: The runs of the search in their order, and what was known after each.
        why: Why the policy, or the search so far, says what it says; None where that is unknown.
        measured_target: A, as far as the search has measured it.
        software: Version by name of distribution.
        uses: The later runs once more, with the demands of their versions.
        use_summaries: Success of each version in later runs, by its number.
    """

    identity: ScheduledJob
    namesakes: tuple[Job, ...]
    reference: str
    place: str
    read_at: datetime
    policy: PolicyEntry | None
    versions: tuple[PolicyEntry, ...]
    search: SearchInfo | None
    cost: SearchCost | None
    trouble: UserError | None
    conditions: RunConditions
    runs: tuple[ReportRun, ...]
    later_runs: tuple[ReportRun, ...]
    path: tuple[PathStep, ...]
    why: Explanation | None
    measured_target: float | None
    software: Mapping[str, str]
    uses: tuple[PolicyUseFacts, ...]
    use_summaries: Mapping[int, UseSummary]

    @property
    def first(self) -> str:
        """The first protocol in sentences."""
        return protocol_text(self.identity.first_protocol)

    @property
    def second(self) -> str:
        """The second protocol in sentences."""
        return protocol_text(self.identity.second_protocol)

    @property
    def answer(self) -> TimingPolicy | None:
        return None if self.policy is None else self.policy.policy

    @property
    def is_found_here(self) -> bool:
        """Whether the search that is shown found the policy that is shown."""
        return _is_found_by(self.policy, self.search)

    @property
    def unplaced_runs(self) -> int:
        """Number of completed runs that count for no switch point, so that no figure has them."""
        return sum(run.is_complete and run.trial.candidate_percent is None for run in self.runs)

    @cached_property
    def compared(self) -> tuple[ReportRun, ...]:
        """The completed runs that count for a switch point, under the conditions of the report."""
        return tuple(
            run
            for run in (*self.runs, *self.later_runs)
            if run.is_complete
            and run.trial.candidate_percent is not None
            and run.trial.conditions == self.conditions
        )

    @cached_property
    def switch_points(self) -> tuple[SwitchPoint, ...]:
        """The switch points of the compared runs, the latest first."""
        by_percent: dict[float, list[ReportRun]] = {}
        for run in self.compared:
            by_percent.setdefault(run.trial.candidate_percent or 0.0, []).append(run)
        latest_first = sorted(by_percent, reverse=True)
        return tuple(SwitchPoint(percent, tuple(by_percent[percent])) for percent in latest_first)

    @property
    def baseline(self) -> SwitchPoint | None:
        """The runs with the first protocol alone; None where there is none."""
        return next((one for one in self.switch_points if one.percent == BASELINE_PERCENT), None)

    @property
    def acceptance(self) -> Acceptance | None:
        """The accuracy to keep, by the policy, else the search so far, else the recorded runs."""
        if self.answer is not None:
            answer = self.answer
            if answer.target_accuracy is None:
                return None
            return Acceptance(Goal(answer.target_accuracy, answer.threshold), "as the policy says")
        search, target = self.search, self.measured_target
        if search is not None:
            if target is None or not search.threshold:
                return None
            origin = "as given to the search" if search.target_accuracy else "as measured so far"
            return Acceptance(Goal(target, search.threshold), origin)
        alone = None if self.baseline is None else self.baseline.accuracy
        if alone is None or not self.identity.metric.has_usual_threshold:
            return None
        origin = f"mean of {self.first} alone, and the loss a search allows by default"
        return Acceptance(Goal(alone.value, USUAL_THRESHOLD), origin)

    @property
    def baseline_seconds(self) -> float | None:
        """Time of one training with the first protocol alone, everywhere on the page.

        The policy's figure; without one the mean of the runs, else an estimate of the search.
        """
        if self.answer is not None and self.answer.measured.baseline_seconds:
            return self.answer.measured.baseline_seconds
        measured = None if self.baseline is None else self.baseline.seconds
        if measured is not None and measured.value > 0:
            return measured.value
        return self.cost.baseline_seconds or None if self.cost is not None else None

    @property
    def baseline_is_estimated(self) -> bool:
        """Whether no run with the first protocol alone gives `baseline_seconds`."""
        if self.answer is not None and self.answer.measured.baseline_seconds:
            return False
        return self.baseline is None or self.baseline.seconds is None

    @property
    def policy_seconds(self) -> float | None:
        """Time of one training with the policy; None without one, or where it is unknown."""
        return None if self.answer is None else self.answer.measured.training_seconds

    @property
    def speed_up(self) -> SpeedUp | None:
        """The policy's gain over the first protocol alone; None where it is unknown."""
        return speed_up_of(self.answer, self.baseline_seconds) if self.answer is not None else None

    @property
    def recurrences_to_pay_back(self) -> float | None:
        """Trainings with the policy that save what its search cost.

        Infinite where the policy saves next to nothing; None where that is not known. The paper's
        "amortized cost" (Tables IV to VI): search cost / (1 - time with the policy).
        """
        gain, seconds = self.speed_up, self.policy_seconds
        if not self.is_found_here or self.cost is None or gain is None or seconds is None:
            return None
        saved = seconds * (gain.value - 1)
        times = self.cost.paid_seconds / saved if saved > 0 else math.inf
        return times if times <= _LONGEST_PAYBACK else math.inf


def _is_found_by(policy: PolicyEntry | None, search: SearchInfo | None) -> bool:
    if policy is None or search is None or policy.imported_at is not None:
        return False
    return policy.policy.study == search.study


def _shown(
    versions: Sequence[PolicyEntry],
    searches: Mapping[str, SearchInfo],
    study: str | None,
    selection: Selection,
    storage_url: str,
) -> tuple[PolicyEntry | None, SearchInfo | None]:
    if study is not None:
        if study not in searches:
            names = ", ".join(searches) or "none"
            raise UserError(
                f"no search {study!r} of this job; there is: {names}", code="nothing-recorded"
            )
        made = (one for one in versions if one.policy.study == study and not one.imported_at)
        return next(made, None), searches[study]
    policy = next(iter(selection.matching(versions)), None)
    if policy is None and selection.choice != CURRENT:
        raise none_found(versions, selection, storage_url)
    newest = next(reversed(list(searches.values())), None)
    if policy is None or policy.imported_at is not None:
        return policy, newest
    return policy, searches.get(policy.policy.study, newest)


def _protocols(
    policy: PolicyEntry | None,
    search: SearchInfo | None,
    trials: Sequence[StoredTrial],
    selection: Selection,
) -> Protocols:
    """The protocols that a report is about: those of the answer, or of the newest run."""
    if policy is not None:
        return policy.policy.protocols
    if search is not None:
        return search.protocols
    known = list(dict.fromkeys(nested(Protocols, flat(trial.job)) for trial in reversed(trials)))
    for protocols in known:
        if selection.has_pair(protocols):
            return protocols
    there = "; ".join(dict.fromkeys(one.pair for one in known)) or "none"
    raise UserError(
        f"{selection.reference!r} has no runs with such protocols; there is: {there}",
        remedy=("choose one of them", leave_out("protocols")),
        code="nothing-recorded",
    )


def _shown_conditions(trials: Iterable[StoredTrial], search: SearchInfo | None) -> RunConditions:
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if search is not None:
        complete = [trial for trial in complete if trial.origin.study == search.study]
    conditions = [trial.conditions for trial in complete]
    usual = RunConditions()
    return usual if not conditions or usual in conditions else conditions[-1]


def load_report(
    database: Database | str,
    workload: str,
    *,
    workers: int | None = None,
    protocols: str | None = None,
    cluster: str | None = None,
    study: str | None = None,
    version: str | None = None,
) -> ReportData:
    """Reads everything that a report shows about one job; nothing is written.

    What chooses the job is as for `searcher.api.report`; the database is open, or its URL. Raises
    UserError if there is no such job, search or version, or there are several jobs.
    """
    selection = Selection(workload, workers, protocols, cluster, version or CURRENT)
    if study is not None and version is not None:
        raise UserError(
            "and a version both say what to show",
            parameter="study",
            remedy="leave out one of them",
            code="parameters-conflict",
        )
    with opened(database) as read:
        registry, store, place = PolicyRegistry(read), TrialStore(read), shown(read.url)
        job, namesakes = only_job(registry.workloads(selection.selector), selection, place)
        fingerprint = job.job.fingerprint
        every = registry.entries(workload=fingerprint)
        searches = {
            search.study: search
            for search in store.searches(workload=fingerprint)
            if search.strategy in STRATEGIES  # a sweep looks for no switch point
            and (selection.has_pair(search.protocols) or selection.protocols in search.pairs)
        }
        policy, search = _shown(every, searches, study, selection, read.url)
        every_trial = store.trials(fingerprint=fingerprint)
        chosen = _protocols(policy, search, every_trial, selection)
        identity = ScheduledJob(job.job, chosen)
        versions = tuple(one for one in every if one.policy.protocols == chosen)
        trials = store.trials(fingerprint=fingerprint, protocols=chosen)
        # A run may be forked from one with another second protocol.
        complete = [trial for trial in every_trial if trial.state == TrialState.COMPLETE]
        newest = complete[-1].software or {} if complete else {}
        whole = whole_runs(complete, store.curves(fingerprint))
        used = uses(read, fingerprint, chosen)
        if policy is not None:
            known = stated_target(policy.policy, collapse_limit_of(policy.policy, used))
            policy = replace(policy, policy=replace(policy.policy, target_accuracy=known))
        # A later run counts for the switch point that held in it.
        later = [replace(use, candidate_percent=use.held_percent) for use in used]
        whole |= whole_runs(later, store.curves(fingerprint, of_uses=True))
        path: tuple[PathStep, ...] = ()
        target: float | None = None
        trouble: UserError | None = None
        cost: SearchCost | None = None
        finished: list[Observation] = []
        if search is not None:
            # What its runs with other second protocols cost is its cost, too.
            of_it = {
                trial.origin.trial_number: trial
                for trial in every_trial
                if trial.origin.study == search.study and trial.origin.trial_number is not None
            }
            cost = total_cost(identity, of_it.values())
            search = replace(search, protocols=chosen)
            finished = read_observations(read, search.study, of_it, chosen)
            path, target, trouble = _path(stored_strategy(search), finished)
        why: Explanation | None = None
        with contextlib.suppress(UserError):  # nobody can explain it
            if policy is not None and not _is_found_by(policy, search):
                why = policy_explained(read, policy)
            elif search is not None:
                why = search_explained(search, finished)
        return ReportData(
            identity=identity,
            namesakes=tuple(other.job for other in namesakes),
            reference=job.reference,
            place=place,
            read_at=datetime.now(timezone.utc),
            policy=policy,
            versions=versions,
            search=search,
            cost=cost,
            trouble=trouble if policy is None else None,
            conditions=_shown_conditions(trials or later, search),
            runs=tuple(ReportRun(trial, whole.get(trial.trial_id)) for trial in trials),
            later_runs=tuple(ReportRun(use, whole.get(use.trial_id)) for use in later),
            path=path,
            why=why,
            measured_target=target,
            software=policy.policy.software if policy else newest,
            uses=tuple(facts_of(used, [entry.policy for entry in versions])),
            use_summaries={
                entry.policy.version: use_summary(entry.policy, used) for entry in versions
            },
        )
