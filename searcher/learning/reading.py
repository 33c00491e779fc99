"""Reads the runs of a job, and of the others that it learns from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from syncswitch.searcher.learning.job import JobHistory, blank_policy, usual_prior
from syncswitch.searcher.search.explanation import Explanation, explain
from syncswitch.searcher.search.observations import read_observations
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import course_of
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import PolicyEntry, PolicyRegistry, current_ones
from syncswitch.storage.policies.unmeasured import LEARNT
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import Protocols, ScheduledJob, SearchInfo
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.store import chosen_phases, uses

if TYPE_CHECKING:
    from syncswitch.searcher.strategies.adaptive.guesses import Experience

_MOST_JOBS = 30


def used_job(database: Database, policy: TimingPolicy, goes_back: bool | None = None) -> JobHistory:
    """Reads a version together with the uses of all versions.

    `goes_back` is whether a run that fails goes back to its switch; None to take that from the
    options of the job's searches and from the cost of its failed switches.
    """
    fingerprint = policy.job.fingerprint
    counted = _counted_uses(database, policy)
    if policy.target_accuracy is None:
        known = known_alone(database, fingerprint, policy.protocols)
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
    return JobHistory(policy, counted, goes_back, experience=experience)


def unused_job(
    database: Database,
    identity: ScheduledJob,
    goes_back: bool | None,
    known: TimingPolicy | None,
    lessons: Iterable[Observation] = (),
) -> JobHistory:
    """A job without a policy for these protocols, of which a first run may teach something.

    What its first protocol alone reaches is `known` from a policy with another second one, if any.
    """
    blank = blank_policy(identity)
    if known is not None:
        blank = _with_alone(blank, known)
    counted = _counted_uses(database, blank)
    experience = _experience_of_others(database, blank)
    return JobHistory(blank, counted, goes_back is not False, tuple(lessons), experience)


def known_alone(database: Database, fingerprint: str, protocols: Protocols) -> TimingPolicy | None:
    """The newest policy of a job that tells what its first protocol alone reaches, if any."""
    for policy in PolicyRegistry(database).policies(workload=fingerprint):
        is_alike = policy.protocols.first_protocol == protocols.first_protocol
        if is_alike and policy.target_accuracy is not None and policy.allowed.is_known:
            return policy
    return None


def _with_alone(policy: TimingPolicy, known: TimingPolicy) -> TimingPolicy:
    """A policy without a target, with what another one tells of the first protocol alone."""
    alone = (run for run in known.evidence if run.switch_percent == BASELINE_PERCENT)
    seconds = known.measured.baseline_seconds
    return replace(
        policy,
        target_accuracy=known.target_accuracy,
        allowed=known.allowed,
        band=known.stated_band,
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
        if is_alike and entry.policy.allowed.is_known:
            return entry.policy
    return None


def as_known_now(database: Database, policy: TimingPolicy) -> TimingPolicy:
    """A version with what all runs so far show: target, shares, time and certainty."""
    job = used_job(database, policy)
    if not job.uses:
        return policy
    goal, expected, stated = None, None, policy.target_accuracy
    with suppress(UserError):  # nothing to compare with
        stated = job.stated_target
        goal, expected = job.goal, job.expected(policy.switch_percent)
    return replace(
        policy,
        target_accuracy=stated if goal is None else goal.accuracy,
        promise=policy.promise
        if expected is None
        else replace(expected.promise, reason=policy.promise.reason),
    )


def _counted_uses(database: Database, policy: TimingPolicy) -> tuple[StoredTrial, ...]:
    protocols = policy.protocols
    return tuple(
        use
        for use in uses(database, policy.job.fingerprint)
        if not use.under.injections
        and (use.is_with(protocols) or use.failed_with(protocols.second_protocol))
    )


def _experience_of_others(
    database: Database, policy: TimingPolicy
) -> Callable[[], Experience | None]:
    """Reads what the other jobs of a database say of how early such a job tolerates a switch.

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
        job = JobHistory(entry.policy, _counted_uses(database, entry.policy))
        with suppress(UserError):  # nothing to compare with
            if job.threshold and job.observations:
                likelihoods.append(job.tolerance_likelihood())
    if not likelihoods:
        return None
    return experience_of(usual_prior(policy.protocols.momentum_after_switch), likelihoods)


def stored_version(database: Database, policy: TimingPolicy) -> TimingPolicy | None:
    """The version of this database that is the same as a policy of a file; None without one."""
    for version in PolicyRegistry(database).policies(workload=policy.job.fingerprint):
        if (version.study, version.created_at) == (policy.study, policy.created_at):
            return version
    return None


def band(database: Database, policy: TimingPolicy) -> Band | None:
    """The band for the next run with a policy, from its search and all uses since."""
    stored = stored_version(database, policy)
    if stored is None:
        return band_alone(policy)
    curves = TrialStore(database).curves(stored.job.fingerprint, of_uses=True)
    return used_job(database, stored).band(curves)


def band_alone(policy: TimingPolicy) -> Band | None:
    """The band for the next run with a policy of a file, from its search."""
    return JobHistory(policy, ()).band({})


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
        allowed=job.allowed,
        own_jobs=0 if experience is None else experience.jobs,
        tolerance=job.tolerance() if is_learnt else (),
        chosen=tuple(chosen_phases(database, policy)),
    )


def search_explained(search: SearchInfo, finished: Iterable[Observation]) -> Explanation:
    """Explains a search by its runs so far, without speculative ones."""
    strategy = stored_strategy(search)
    return explain(strategy, course_of(strategy, finished).runs)
