"""Reads from the database what a report shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

from syncswitch.searcher.learning.uses import policy_explained, search_explained
from syncswitch.searcher.report.data import Acceptance, ReportData, ReportRun
from syncswitch.searcher.report.history import SearchHistory, history_of
from syncswitch.searcher.search.explanation import Explanation
from syncswitch.searcher.search.liveness import state_of
from syncswitch.searcher.search.observations import read_observations
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.searcher.strategies.registry import STRATEGIES
from syncswitch.storage.database.engine import Database, opened
from syncswitch.storage.database.inspection import shown
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import CURRENT, EvidenceTrial, PolicyEntry, PolicyRegistry
from syncswitch.storage.queries.search_costs import study_costs
from syncswitch.storage.queries.summaries import (
    SwitchPointStatistics,
    switch_point_statistics,
)
from syncswitch.storage.queries.trial_details import trial_details
from syncswitch.storage.queries.uses import use_facts
from syncswitch.storage.records.job import RegisteredWorkload, RunConditions
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialState
from syncswitch.storage.trials.rows import condition_values
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import SearchInfo, StoredTrial
from syncswitch.storage.uses.store import use_observations
from syncswitch.storage.uses.summary import use_summary
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.replay.recording import RecordedRun, whole_runs


def only_job(
    known: Sequence[RegisteredWorkload],
    reference: str,
    workers: int | None,
    protocols: tuple[str, str] | None,
    place: str,
) -> RegisteredWorkload:
    """The one job that is meant; raises UserError where there is none, or there are several."""
    fitting = [
        job
        for job in known
        if workers in (None, job.identity.workers)
        and protocols in (None, (job.identity.first_protocol, job.identity.second_protocol))
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UserError(
            f"{reference!r} names {len(fitting)} jobs: {_named(fitting)}; choose with --workers,"
            " --protocols or the fingerprint"
        )
    if known:
        raise UserError(
            f"{reference!r} has no runs on such a cluster; there is: {_named(known)}; choose one of"
            " them, or leave out --workers and --protocols"
        )
    raise UserError(
        f"no workload {reference!r} in {place}; see: syncswitch-search trials, or find its policy"
        f" with: syncswitch-search run {reference}"
    )


def _named(jobs: Iterable[RegisteredWorkload]) -> str:
    return "; ".join(f"{job.identity.cluster} [{job.identity.fingerprint[:12]}]" for job in jobs)


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
    protocols: tuple[str, str] | None = None,
    study: str | None = None,
    version: str | None = None,
) -> ReportData:
    """Reads everything that a report shows of one job; nothing is written.

    Args:
        database: Open, or its URL.
        workload: Name, `file.py:attribute`, `package.module:attribute`, or 8 or more digits of the
            fingerprint.
        workers: Only the job on a cluster of this size.
        protocols: Only the job with these, before and after the switch.
        study: Name of the search to show; default: the one that found the current policy, else the
            newest.
        version: Number or alias of the policy to show, with the search that found it; default: the
            current one.

    Raises:
        UserError: There is no such job, search or version, or there are several jobs.
    """
    with opened(database) as read:
        registry, store, place = PolicyRegistry(read), TrialStore(read), shown(read.url)
        known = registry.workloads(normal_reference(workload))
        job = only_job(known, workload, workers, protocols, place)
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
        history = _history(read, search, trials) if search else None
        why, no_why = _why(read, policy, search)
        used = use_observations(read, fingerprint)
        return ReportData(
            identity=job.identity,
            reference=job.reference,
            place=place,
            read_at=datetime.now(timezone.utc),
            policy=policy,
            versions=versions,
            evidence=_evidence(registry, policy),
            search=search,
            searches=tuple(study_costs(read, fingerprint=fingerprint)),
            trouble=history.trouble if history and policy is None else None,
            conditions=conditions,
            runs=tuple(_run(trial, whole) for trial in trials),
            switch_points=switch_points,
            path=history.steps if history else (),
            why=why,
            no_why=no_why,
            acceptance=_acceptance(
                policy, search, history.target_accuracy if history else None, switch_points
            ),
            software=policy.policy.software if policy else _software(read, complete),
            uses=tuple(use_facts(read, fingerprint=fingerprint)),
            use_summaries={
                entry.policy.version: use_summary(entry.policy, used) for entry in versions
            },
        )


def _history(
    database: Database,
    search: SearchInfo,
    trials: Sequence[StoredTrial],
) -> SearchHistory:
    rows = {
        trial.trial_number: trial
        for trial in trials
        if trial.study == search.study and trial.trial_number is not None
    }
    finished = read_observations(database, search.study, rows)
    return history_of(search, finished)


def _why(
    database: Database, policy: PolicyEntry | None, search: SearchInfo | None
) -> tuple[Explanation | None, str | None]:
    """Of the policy, else of the search as far as it is; or why nobody can say."""
    try:
        if policy is not None:
            return policy_explained(database, policy), None
        if search is not None and search.strategy in STRATEGIES:
            return search_explained(database, search), None
    except UserError as error:
        return None, str(error)
    return None, "nothing is looked for here, so there is nothing to explain"


def _evidence(registry: PolicyRegistry, policy: PolicyEntry | None) -> tuple[EvidenceTrial, ...]:
    if policy is None:
        return ()
    return tuple(registry.evidence_trials(policy.policy.fingerprint, policy.policy.version))


def _software(database: Database, complete: Sequence[StoredTrial]) -> Mapping[str, str]:
    """Of the newest complete run."""
    last = [trial.trial_id for trial in complete[-1:]]
    for details in trial_details(database, trial_ids=last):
        return details.facts["software"] or {}
    return {}


def _is_under(switch_point: SwitchPointStatistics, conditions: RunConditions) -> bool:
    values = condition_values(conditions)
    return all(getattr(switch_point, name) == value for name, value in values.items())


def _run(
    trial: StoredTrial,
    whole: Mapping[int, RecordedRun],
) -> ReportRun:
    return ReportRun(
        trial=trial,
        whole=whole.get(trial.trial_id),
        outcome=_outcome(trial),
    )


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
) -> Acceptance | None:
    """Of the policy, else of the search as far as it is, else of the recorded baseline."""
    if policy is not None:
        found = policy.policy
        return Acceptance(found.target_accuracy, found.threshold, "as the policy says")
    if search is not None:
        if measured_target is None:
            return None
        origin = "as given to the search" if search.target_accuracy else "as measured so far"
        return Acceptance(measured_target, search.threshold, origin)
    for switch_point in switch_points:
        if (
            switch_point.candidate_percent == BASELINE_PERCENT
            and switch_point.mean_accuracy is not None
        ):
            origin = "mean of the first protocol alone, and the loss a search allows by default"
            return Acceptance(switch_point.mean_accuracy, AdaptiveStrategy().threshold, origin)
    return None
