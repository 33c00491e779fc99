"""Learning from a job's uses in a database: the next run, and the policies that follow.

The first run of a job without a policy uses the first protocol alone and is published as a policy.
The runs after it are recorded as uses of that policy, whatever their switch. Where they show that
another switch takes less time, it is published as the next version.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from syncswitch.searcher.learning.used_job import FIRST_REASON, LEARNT, Revision, UsedJob
from syncswitch.searcher.search.explanation import Explanation, explain
from syncswitch.searcher.search.observations import read_observations
from syncswitch.searcher.search.policy_words import drift_text
from syncswitch.searcher.search.recorded import measured_band
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.planner import course_of
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.searcher.words import measured_threshold_text
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import CURRENT, PolicyEntry, PolicyRegistry
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import SearchInfo
from syncswitch.storage.trials.workloads import register_workload
from syncswitch.storage.uses.store import use_curves, uses
from syncswitch.storage.uses.summary import use_summary


@dataclass(frozen=True, slots=True)
class NextRun:
    """The switch of a training, and what its guard compares it with.

    Attributes:
        policy: The policy that it uses; None for a switch point of the user's own, and for the
            first run of a job that is learnt from its runs.
        switch_percent: Where it switches.
        band: What its guard compares it with; None without a guard.
        begins_from: The policy of simulated runs from which the first real one begins.
        learns: Whether what it measures decides where later runs switch.
    """

    policy: TimingPolicy | None
    switch_percent: float
    band: Band | None = None
    begins_from: TimingPolicy | None = None
    learns: bool = False


def next_run(
    database: Database, identity: WorkloadIdentity, uses: int, goes_back: bool | None = None
) -> NextRun:
    """Decides where the next training of a job switches, if `uses` trainings of it are expected.

    Raises:
        UserError: As `UsedJob.next_percent`.
    """
    found = PolicyRegistry(database).lookup(identity.fingerprint)
    if found:
        job = used_job(database, found[0], goes_back)
        band = job.band(use_curves(database, identity.fingerprint))
        return NextRun(found[0], job.next_percent(uses), band, learns=True)
    begin = simulated_policy(database, identity)
    if begin is None:
        return NextRun(None, BASELINE_PERCENT, learns=True)
    return NextRun(None, begin.switch_percent, _band_of(begin), begin, learns=True)


def simulated_policy(database: Database, identity: WorkloadIdentity) -> TimingPolicy | None:
    """The newest policy from which the first real run of a job may begin; None without one.

    It was found for the same job on a simulated cluster. The first protocol alone makes the same
    steps on a virtual clock as on a real one, so the accuracy that it reached there gives that run
    its target and band. Training times and the effect of stale gradients are learnt from real runs
    alone.
    """
    for entry in PolicyRegistry(database).entries(workload=identity.name):
        real = replace(entry.identity, simulated_cluster=None)
        if (
            real != entry.identity
            and real.fingerprint == identity.fingerprint
            and CURRENT in entry.aliases
            and entry.policy.threshold
        ):
            return entry.policy
    return None


def _band_of(policy: TimingPolicy) -> Band:
    return policy.band or Band(policy.target_accuracy, policy.threshold)


def first_policy(
    database: Database,
    identity: WorkloadIdentity,
    reference: str,
    record: TrialRecord,
    begins_from: TimingPolicy | None = None,
) -> TimingPolicy | None:
    """Publishes the first run of a job as its policy; None where it diverged.

    A run that began from a policy of simulated runs publishes the switch that held in it, with the
    target and band of that policy until the job's own runs replace them.
    """
    if record.diverged:
        return None
    accuracy, usual = record.converged_accuracy, AdaptiveStrategy()
    if not identity.decided_by.has_usual_threshold:
        usual = usual.without_threshold()
    policy = TimingPolicy(
        **identity.policy_fields,
        version=1,
        switch_percent=BASELINE_PERCENT,
        target_accuracy=accuracy,
        threshold=usual.threshold,
        mean_accuracy=accuracy,
        training_seconds=record.training_seconds,
        baseline_seconds=record.training_seconds,
        strategy=usual.name,
        study=f"{LEARNT}{identity.fingerprint[:12]}",
        evidence=(),
        created_at=datetime.now(timezone.utc).isoformat(),
        software=software_versions(),
        guarded=True,
        reason=FIRST_REASON,
        band=measured_band(accuracy, usual.threshold, [record.evaluations]),
    )
    if begins_from is not None:
        guard, began = record.guard, record.spec.switch_percent
        held = began if guard is None or guard.held_percent is None else guard.held_percent
        policy = replace(
            policy,
            switch_percent=held,
            target_accuracy=begins_from.target_accuracy,
            threshold=begins_from.threshold,
            training_seconds=record.training_seconds if held == began else None,
            baseline_seconds=None,
            reason=f"begun from version {begins_from.version} for {begins_from.workers} simulated"
            f" workers, a switch at {begins_from.switch_percent:g} %",
            band=_band_of(begins_from),
        )
    register_workload(database, identity, reference)
    return PolicyRegistry(database).publish(policy)


def revise(database: Database, policy: TimingPolicy) -> tuple[Revision, TimingPolicy] | None:
    """Publishes another switch as a new version, if the uses of a policy call for it.

    A version is revised once: whoever else does so at the same moment gets the same new version.
    `current` points at it, other aliases stay.

    Returns:
        The reason and the new version; None where the policy may stay, or is not `current`.

    Raises:
        PolicyError: `current` was moved meanwhile.
        UserError: As `UsedJob.revision`.
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
    return PolicyRegistry(database).aliases(policy.fingerprint).get(CURRENT) == policy.version


def used_job(database: Database, policy: TimingPolicy, goes_back: bool | None = None) -> UsedJob:
    """Reads a version together with the uses of all versions.

    `goes_back` is whether a run that fails goes back to its switch; None to take that from the
    options of the job's searches and from the cost of its failed switches.
    """
    counted = (use for use in uses(database, policy.fingerprint) if not use.injections)
    job = UsedJob(policy, tuple(counted))
    if goes_back is None:
        searches = TrialStore(database).searches(workload=policy.fingerprint)
        told = [one.options.get("goes_back", True) for one in searches]
        goes_back = all(told) and not job.has_begun_anew
    return replace(job, goes_back=goes_back)


def _stored_version(database: Database, policy: TimingPolicy) -> TimingPolicy | None:
    """The version of this database that is the same as a policy of a file; None without one."""
    versions = PolicyRegistry(database).policies(workload=policy.fingerprint)
    made = (policy.study, policy.created_at)
    return next((one for one in versions if (one.study, one.created_at) == made), None)


def band(database: Database, policy: TimingPolicy) -> Band | None:
    """The band for the next run with a policy, from its search and all uses since."""
    stored = _stored_version(database, policy)
    if stored is None:
        return policy.band
    return used_job(database, stored).band(use_curves(database, stored.fingerprint))


def after_use(
    database: Database,
    policy: TimingPolicy,
    expected_uses: int | None = None,
    goes_back: bool | None = None,
) -> list[str]:
    """Reviews a policy after one more recorded use.

    Args:
        database: It has the use.
        policy: The policy that the run trained with.
        expected_uses: Total number of trainings of the job, by runs that learn: where another
            switch takes less time, it is published, once nothing is left to try. None where runs
            keep to the policy: then people are told how to publish it.
        goes_back: See `used_job`.

    Returns:
        Sentences for people, without their full stops.
    """
    registry, stored = PolicyRegistry(database), _stored_version(database, policy)
    if stored is None:
        return []
    job = used_job(database, stored, goes_back)
    drift = use_summary(stored, job.uses).drift
    words = [] if drift is None else [drift_text(drift)]
    if not _is_current(database, stored):
        return words
    measured = None if expected_uses is None else job.with_measured_threshold()
    if measured is not None:
        stored = registry.publish(measured, replaces=stored.version)
        job = replace(job, policy=stored)
        first, metric = stored.first_protocol.upper(), stored.decided_by
        words.append(measured_threshold_text(stored.threshold, metric, first))
    revision = job.revision(expected_uses)
    if revision is None:
        return words
    if expected_uses is None:
        command = ["syncswitch-search", "policy", "revise", stored.workload]
        command += ["--workers", str(stored.workers)]
        workload = registry.workload(stored.fingerprint)
        if workload is not None and workload.identity.simulated_cluster is not None:
            command += ["--cluster", "simulated"]
        return [*words, f"{revision.why}; publish it with: {shlex.join(command)}"]
    new = registry.publish(job.draft(revision), replaces=stored.version)
    switch = f"a switch at {new.switch_percent:g} %"
    if new.switch_percent == BASELINE_PERCENT:
        switch = f"{new.first_protocol.upper()} alone"
    return [*words, f"{revision.why}: from now on version {new.version}, {switch}"]


def policy_explained(database: Database, entry: PolicyEntry) -> Explanation:
    """Explains a policy by its search; without one, by its evidence and uses.

    Raises:
        UserError: The runs leave nothing to compare with.
    """
    policy = entry.policy
    searches = TrialStore(database).searches(workload=policy.fingerprint)
    found = [search for search in searches if search.study == policy.study]
    if found and entry.imported_at is None:
        return search_explained(database, found[0])
    job = used_job(database, policy)
    is_learnt = policy.study.startswith(LEARNT) and not policy.evidence
    return replace(
        explain(job.strategy(), job.observations()),
        threshold_is_measured=is_learnt and not policy.decided_by.has_usual_threshold,
    )


def search_explained(database: Database, search: SearchInfo) -> Explanation:
    """Explains a search by its runs so far, without speculative ones."""
    trials = TrialStore(database).trials(fingerprint=search.fingerprint)
    rows = {
        trial.trial_number: trial
        for trial in trials
        if trial.study == search.study and trial.trial_number is not None
    }
    strategy = stored_strategy(search)
    course = course_of(strategy, read_observations(database, search.study, rows))
    return explain(strategy, course.runs)
