"""What a report shows of one job, read once: frozen values, and what follows from them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from syncswitch.searcher.learning.uses import policy_explained, search_explained
from syncswitch.searcher.search.explanation import Explanation
from syncswitch.searcher.search.liveness import state_of
from syncswitch.searcher.search.observations import read_observations
from syncswitch.searcher.selection import ClusterKind, Selection, only_job
from syncswitch.searcher.simulation.estimates import mean
from syncswitch.searcher.speed_up import SpeedUp, speed_up_of
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import course_of
from syncswitch.searcher.strategies.registry import STRATEGIES, stored_strategy
from syncswitch.storage.database.engine import Database, opened
from syncswitch.storage.database.inspection import shown
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import CURRENT, EvidenceTrial, PolicyEntry, PolicyRegistry
from syncswitch.storage.queries.search_costs import StudyCost, study_costs
from syncswitch.storage.queries.summaries import (
    SwitchPointStatistics,
    switch_point_statistics,
)
from syncswitch.storage.queries.uses import PolicyUseFacts, use_facts
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import SearchInfo, StoredTrial, condition_values
from syncswitch.storage.uses.store import uses
from syncswitch.storage.uses.summary import UseSummary, use_summary
from syncswitch.trainers.replay.recording import RecordedRun, whole_runs


@dataclass(frozen=True, slots=True)
class PathStep:
    """One run of a search, and what was known after it.

    Attributes:
        trial_number: In the search.
        switch_percent: Its switch point.
        replicate: Number of this repeat of the switch point, from 0.
        accuracy: Converged accuracy.
        diverged: Whether the training blew up.
        stopped_early: It was not made to its end.
        accepted: What the strategy thought of the switch point now; None while that was open.
        lower_percent: The highest switch point known to switch too early, or the lower end.
        upper_percent: The lowest switch point known to be acceptable.
        is_needed: The search asked for it; else it is speculative, and not asked for so far.
    """

    trial_number: int
    switch_percent: float
    replicate: int
    accuracy: float
    diverged: bool
    stopped_early: bool
    accepted: bool | None
    lower_percent: float
    upper_percent: float
    is_needed: bool

    @property
    def kind(self) -> str:
        """What it was for the search: `target`, `accepted`, `rejected`, `open`, `speculative`."""
        if not self.is_needed:
            return "speculative"
        if self.switch_percent >= BASELINE_PERCENT:
            return "target"
        return {True: "accepted", False: "rejected", None: "open"}[self.accepted]


def _course(
    strategy: Strategy, finished: Sequence[Observation]
) -> tuple[tuple[PathStep, ...], float | None, str | None]:
    """The runs of a search, A as far as it is known, and why it cannot go on, if it cannot.

    The runs stand in the order in which the search asked for them, then the speculative ones.
    """
    trouble, target = None, strategy.target_accuracy
    try:
        needed = course_of(strategy, finished).runs
        target = strategy.progress(needed).target_accuracy
    except UserError as error:
        needed, trouble = tuple(finished), str(error)
    asked = {run.trial_number for run in needed}
    in_advance = [run for run in finished if run.trial_number not in asked]
    steps = (
        *(_step(strategy, needed[: n + 1], run, is_needed=True) for n, run in enumerate(needed)),
        *(_step(strategy, needed, run, is_needed=False) for run in in_advance),
    )
    return steps, target, trouble


def _step(
    strategy: Strategy, known: tuple[Observation, ...], run: Observation, *, is_needed: bool
) -> PathStep:
    try:
        progress = strategy.progress(known)
    except UserError:  # the baseline diverged: nothing is known, and nothing will be
        accepted, bracket = None, (strategy.lowest_percent, strategy.highest_percent)
    else:
        verdicts = {one.switch_percent: one.accepted for one in progress.summaries}
        accepted = verdicts.get(run.switch_percent)
        bracket = (progress.lower_percent, progress.upper_percent)
    return PathStep(
        trial_number=run.trial_number,
        switch_percent=run.switch_percent,
        replicate=run.replicate,
        accuracy=run.accuracy,
        diverged=run.diverged,
        stopped_early=run.stopped_early,
        accepted=accepted,
        lower_percent=bracket[0],
        upper_percent=bracket[1],
        is_needed=is_needed,
    )


# Who needs more trainings than this to save what a search cost saves nothing that counts.
_LONGEST_PAYBACK = 10_000


@dataclass(frozen=True, slots=True)
class ReportRun:
    """One training run.

    Attributes:
        trial: As the database has it.
        whole: From its first worker-step on, what a fork inherited included; None for a run that
            is not complete, or whose beginning is lost.
        outcome: `whole`, `stopped` (early: its accuracy was known, or a guard ended it),
            `diverged`, `cancelled` (no longer needed), `failed`, `running` or `stale` (its process
            died).
    """

    trial: StoredTrial
    whole: RecordedRun | None
    outcome: str

    @property
    def name(self) -> str:
        """What people tell it from the others by."""
        if self.trial.source is not None:
            return self.trial.source
        return f"trial {self.trial.trial_number}"

    @property
    def is_complete(self) -> bool:
        """Whether it measured something."""
        return self.trial.state == TrialState.COMPLETE

    @property
    def is_sound(self) -> bool:
        """Complete, and not diverged."""
        return self.is_complete and not self.trial.diverged


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a switch point has to keep.

    Attributes:
        target_accuracy: A, 0 to 1.
        threshold: beta, the accuracy that may be lost.
        origin: Where these come from, in words.
    """

    target_accuracy: float
    threshold: float
    origin: str

    @property
    def least_accuracy(self) -> float:
        """The lowest mean accuracy that is accepted."""
        return self.target_accuracy - self.threshold


@dataclass(frozen=True, slots=True)
class MeanSeconds:
    """Mean training time of whole runs.

    Attributes:
        half: Of its 95 % interval (Student's); None for a single run.
    """

    value: float
    half: float | None


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that a report shows.

    Attributes:
        identity: The job.
        namesakes: The simulated jobs of the same name to which this real one was preferred.
        reference: How to load its workload, as the database knows it.
        place: The database, without password.
        read_at: When it was read; UTC.
        policy: The policy that is shown; None where there is none yet.
        versions: All versions, newest first.
        evidence: What the database still has of the runs that the policy rests on, in its order.
        search: The search that is shown: the one that found the policy, else the newest; None
            where there is none.
        searches: All searches and evaluations of the job and what they cost.
        trouble: Why the search has no answer; None where nothing is wrong.
        conditions: Under which the runs trained that the figures compare.
        runs: All runs of the job, in the order in which they were added.
        switch_points: Statistics of the switch points, of completed runs under `conditions`.
        path: The runs of the search in their order, and what was known after each.
        why: Why the policy, or the search so far, says what it says; None where nobody knows.
        acceptance: What a switch point has to keep; None as long as nothing was measured.
        software: Version by name of distribution.
        uses: The later runs with the policy, of all versions.
        use_summaries: How each version has done, by its number.
    """

    identity: WorkloadIdentity
    namesakes: tuple[WorkloadIdentity, ...]
    reference: str
    place: str
    read_at: datetime
    policy: PolicyEntry | None
    versions: tuple[PolicyEntry, ...]
    evidence: tuple[EvidenceTrial, ...]
    search: SearchInfo | None
    searches: tuple[StudyCost, ...]
    trouble: str | None
    conditions: RunConditions
    runs: tuple[ReportRun, ...]
    switch_points: tuple[SwitchPointStatistics, ...]
    path: tuple[PathStep, ...]
    why: Explanation | None
    acceptance: Acceptance | None
    software: Mapping[str, str]
    uses: tuple[PolicyUseFacts, ...]
    use_summaries: Mapping[int, UseSummary]

    @property
    def first(self) -> str:
        """The first protocol, as people write it."""
        return self.identity.first_protocol.upper()

    @property
    def second(self) -> str:
        """The second one."""
        return self.identity.second_protocol.upper()

    @property
    def cost(self) -> StudyCost | None:
        """Of the search that is shown."""
        if self.search is None:
            return None
        return next(one for one in self.searches if one.study == self.search.study)

    @property
    def answer(self) -> TimingPolicy | None:
        """The policy itself."""
        return None if self.policy is None else self.policy.policy

    @property
    def is_found_here(self) -> bool:
        """Whether the search that is shown found the policy that is shown."""
        if self.policy is None or self.search is None or self.policy.imported_at is not None:
            return False
        return self.policy.policy.study == self.search.study

    @property
    def is_evaluation(self) -> bool:
        """What is shown compares switch points and looks for none."""
        return self.search is not None and self.search.strategy == ComparisonStrategy().name

    @property
    def what(self) -> str:
        """`search` or `evaluation`."""
        return "evaluation" if self.is_evaluation else "search"

    @property
    def unplaced_runs(self) -> int:
        """Completed runs that count for no switch point, so that no figure compares them."""
        return sum(run.is_complete and run.trial.candidate_percent is None for run in self.runs)

    @property
    def compared(self) -> tuple[ReportRun, ...]:
        """The completed runs that count for a switch point, under the conditions of the report."""
        return tuple(
            run
            for run in self.runs
            if run.is_complete
            and run.trial.candidate_percent is not None
            and run.trial.conditions == self.conditions
        )

    @property
    def search_runs(self) -> tuple[ReportRun, ...]:
        """Of the search that is shown, whatever became of them."""
        if self.search is None:
            return ()
        return tuple(run for run in self.runs if run.trial.study == self.search.study)

    def at(self, candidate_percent: float) -> tuple[ReportRun, ...]:
        """The compared runs of one switch point."""
        return tuple(
            run for run in self.compared if run.trial.candidate_percent == candidate_percent
        )

    def whole_seconds(self, candidate_percent: float) -> MeanSeconds | None:
        """Training time of a whole run at a switch point.

        Of a run that was stopped early it is what the whole would have taken; diverged runs are
        left out. None where no time is known.
        """
        return mean_seconds(run.trial.whole_run_seconds for run in self.at(candidate_percent))

    @property
    def baseline_seconds(self) -> float | None:
        """One training with the first protocol alone, everywhere on the page.

        As the policy has it; where it says nothing, the mean of the runs, else an estimate.
        """
        if self.answer is not None and self.answer.baseline_seconds:
            return self.answer.baseline_seconds
        measured = self.whole_seconds(BASELINE_PERCENT)
        if measured is not None and measured.value > 0:
            return measured.value
        return self.cost.baseline_seconds or None if self.cost is not None else None

    @property
    def baseline_is_estimated(self) -> bool:
        """No run with the first protocol alone says `baseline_seconds`."""
        if self.answer is not None and self.answer.baseline_seconds:
            return False
        return self.whole_seconds(BASELINE_PERCENT) is None

    @property
    def policy_seconds(self) -> float | None:
        """One training with the policy; None without one, or where its time is unknown."""
        return None if self.answer is None else self.answer.training_seconds

    @property
    def measured_speed_up(self) -> SpeedUp | None:
        """Times as fast as the first protocol alone, and how surely; None where that is unknown."""
        if self.answer is not None and self.answer.speed_up is not None:
            return speed_up_of(self.answer)
        if not self.policy_seconds or not self.baseline_seconds:
            return None
        return SpeedUp(self.baseline_seconds / self.policy_seconds)

    @property
    def speed_up(self) -> float | None:
        """The same without its interval."""
        found = self.measured_speed_up
        return found.value if found else None

    @property
    def recurrences_to_pay_back(self) -> float | None:
        """Trainings with the policy that save what its search cost.

        Infinite where the policy saves nothing that counts; None where that is not known. As the
        paper's "amortized cost" (Tables IV to VI): search cost / (1 - time with the policy).
        """
        if not self.is_found_here or self.cost is None or self.speed_up is None:
            return None
        assert self.policy_seconds is not None  # or there were no speed-up
        saved = self.policy_seconds * (self.speed_up - 1)
        times = self.cost.paid_seconds / saved if saved > 0 else math.inf
        return times if times <= _LONGEST_PAYBACK else math.inf


def mean_seconds(values: Iterable[float | None]) -> MeanSeconds | None:
    """Of those that are known; None for none."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    found = mean(known)
    return MeanSeconds(found.value, found.high - found.value if len(known) > 1 else None)


def shown_policy(
    versions: Sequence[PolicyEntry],
    searches: Mapping[str, SearchInfo],
    study: str | None,
    version: str | None = None,
) -> PolicyEntry | None:
    """The version or alias that is named, else what the named search found, else the current one.

    Raises UserError where there is no such version or search.
    """
    if version is not None:
        return _version(versions, version)
    if study is None:
        return next((entry for entry in versions if CURRENT in entry.aliases), None)
    if study not in searches:
        known = ", ".join(searches) or "none"
        raise UserError(f"no search {study!r} of this job; there is: {known}")
    found = (entry for entry in versions if entry.policy.study == study and not entry.imported_at)
    return next(found, None)


def _version(versions: Sequence[PolicyEntry], version: str) -> PolicyEntry:
    for entry in versions:
        if version in (str(entry.policy.version), *entry.aliases):
            return entry
    numbers = [str(entry.policy.version) for entry in versions]
    aliases = sorted({alias for entry in versions for alias in entry.aliases})
    known = ", ".join([*numbers, *aliases]) or "none"
    raise UserError(f"no version or alias {version!r} of this job; there is: {known}")


def shown_search(
    searches: Mapping[str, SearchInfo], policy: PolicyEntry | None, study: str | None
) -> SearchInfo | None:
    """The search that is named, else the one that found the policy, else the newest.

    An evaluation looks for nothing, so it is shown only where it is named.
    """
    if study is not None:
        return searches[study]
    if policy is not None and policy.imported_at is None and policy.policy.study in searches:
        return searches[policy.policy.study]
    real = [one for one in searches.values() if one.strategy != ComparisonStrategy().name]
    return real[-1] if real else None


def shown_conditions(trials: Iterable[StoredTrial], search: SearchInfo | None) -> RunConditions:
    """Those of the search; without one the usual ones, where a complete run had them."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if search is not None:
        complete = [trial for trial in complete if trial.study == search.study]
    found = [trial.conditions for trial in complete]
    usual = RunConditions()
    return usual if not found or usual in found else found[-1]


def load_report(
    database: Database | str,
    workload: str,
    *,
    workers: int | None = None,
    protocols: str | None = None,
    cluster: ClusterKind | None = None,
    study: str | None = None,
    version: str | None = None,
) -> ReportData:
    """Reads everything that a report shows of one job; nothing is written.

    Args:
        database: Open, or its URL.
        workload: Name, `file.py:attribute`, `package.module:attribute`, or 8 or more digits of the
            fingerprint.
        workers: Only the job on a cluster of this size.
        protocols: Only the job with these before and after the switch, such as `bsp,asp`.
        cluster: Only the job on a real or on a simulated cluster; default: the real one, where jobs
            of this name are on both.
        study: Name of the search to show; default: the one that found the current policy, else the
            newest.
        version: Number or alias of the policy to show, with the search that found it; default: the
            current one.

    Raises:
        UserError: There is no such job, search or version, or there are several jobs.
    """
    selection = Selection(workload, workers, protocols, cluster)
    if study is not None and version is not None:
        raise UserError("--study and a version both say what to show: leave out one of them")
    with opened(database) as read:
        registry, store, place = PolicyRegistry(read), TrialStore(read), shown(read.url)
        job, namesakes = only_job(registry.workloads(selection.selector), selection, place)
        fingerprint = job.identity.fingerprint
        versions = tuple(registry.entries(workload=fingerprint))
        searches = {info.study: info for info in store.searches(workload=fingerprint)}
        policy = shown_policy(versions, searches, study, version)
        search = shown_search(searches, policy, study)
        trials = store.trials(fingerprint=fingerprint)
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        whole = whole_runs(complete, store.curves(fingerprint))
        conditions = shown_conditions(trials, search)
        statistics = switch_point_statistics(read, fingerprint=fingerprint)
        switch_points = tuple(one for one in statistics if _is_under(one, conditions))
        path: tuple[PathStep, ...] = ()
        target: float | None = None
        trouble: str | None = None
        if search is not None:
            of_it = {
                trial.trial_number: trial
                for trial in trials
                if trial.study == search.study and trial.trial_number is not None
            }
            finished = read_observations(read, search.study, of_it)
            path, target, trouble = _course(stored_strategy(search), finished)
        used = uses(read, fingerprint)
        return ReportData(
            identity=job.identity,
            namesakes=tuple(other.identity for other in namesakes),
            reference=job.reference,
            place=place,
            read_at=datetime.now(timezone.utc),
            policy=policy,
            versions=versions,
            evidence=_evidence(registry, policy),
            search=search,
            searches=tuple(study_costs(read, fingerprint=fingerprint)),
            trouble=trouble if policy is None else None,
            conditions=conditions,
            runs=tuple(
                ReportRun(trial, whole.get(trial.trial_id), _outcome(trial)) for trial in trials
            ),
            switch_points=switch_points,
            path=path,
            why=_why(read, policy, search),
            acceptance=_acceptance(policy, search, target, switch_points, job.identity.decided_by),
            software=policy.policy.software if policy else _software(complete),
            uses=tuple(use_facts(read, fingerprint=fingerprint)),
            use_summaries={
                entry.policy.version: use_summary(entry.policy, used) for entry in versions
            },
        )


def _why(
    database: Database, policy: PolicyEntry | None, search: SearchInfo | None
) -> Explanation | None:
    """Of the policy, else of the search as far as it is; None where nobody can say."""
    with contextlib.suppress(UserError):
        if policy is not None:
            return policy_explained(database, policy)
        if search is not None and search.strategy in STRATEGIES:
            return search_explained(database, search)
    return None


def _evidence(registry: PolicyRegistry, policy: PolicyEntry | None) -> tuple[EvidenceTrial, ...]:
    if policy is None:
        return ()
    return tuple(registry.evidence_trials(policy.policy.fingerprint, policy.policy.version))


def _software(complete: Sequence[StoredTrial]) -> Mapping[str, str]:
    """The software of the newest complete run."""
    return (complete[-1].software or {}) if complete else {}


def _is_under(switch_point: SwitchPointStatistics, conditions: RunConditions) -> bool:
    values = condition_values(conditions)
    return all(getattr(switch_point, name) == value for name, value in values.items())


def _outcome(trial: StoredTrial) -> str:
    if trial.is_cancelled:
        return "cancelled"
    if trial.state != TrialState.COMPLETE:
        return state_of(trial)
    if trial.diverged:
        return "diverged"
    return "stopped" if trial.stopped_early else "whole"


def _acceptance(
    policy: PolicyEntry | None,
    search: SearchInfo | None,
    measured_target: float | None,
    switch_points: Sequence[SwitchPointStatistics],
    metric: Metric,
) -> Acceptance | None:
    """Of the policy, else of the search as far as it is, else of the recorded baseline."""
    if policy is not None:
        found = policy.policy
        return Acceptance(found.target_accuracy, found.threshold, "as the policy says")
    if search is not None:
        if measured_target is None or not search.threshold:
            return None
        origin = "as given to the search" if search.target_accuracy else "as measured so far"
        return Acceptance(measured_target, search.threshold, origin)
    for switch_point in switch_points if metric.has_usual_threshold else ():
        if (
            switch_point.candidate_percent == BASELINE_PERCENT
            and switch_point.mean_accuracy is not None
        ):
            origin = "mean of the first protocol alone, and the loss a search allows by default"
            return Acceptance(switch_point.mean_accuracy, AdaptiveStrategy().threshold, origin)
    return None
