"""Jobs that learn from their uses, in a database: the next run, and the policies that come of it.

The first run of a job without a policy uses the first protocol alone. It is published as a policy
that says so, on which the runs after it are recorded as uses, whatever their switch. Where the uses
say that another switch takes less time, that is published as the next version.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from syncswitch.searcher.learning.used_job import FIRST_REASON, LEARNT, Revision, UsedJob
from syncswitch.searcher.search.band import measured_band
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.rows import CURRENT
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.guard import later_switch_points
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord
from syncswitch.storage.records.use import NextRun
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.workloads import register_workload
from syncswitch.storage.uses.store import use_curves, uses
from syncswitch.storage.uses.summary import is_counted


def next_run(
    storage_url: str, identity: WorkloadIdentity, uses: int, goes_back: bool | None = None
) -> NextRun:
    """Where the next training of a job switches; it makes the database if need be.

    Args:
        storage_url: The database.
        identity: The job.
        uses: How often it is trained in all, those that are done included.
        goes_back: See `used_job`.

    Raises:
        UserError: Nobody knows how much of the job's metric may be lost.
    """
    with open_database(storage_url, create=True) as database:
        found = PolicyRegistry(database).lookup(identity.fingerprint, alias=CURRENT)
        if not found:
            metric = identity.decided_by
            if not metric.has_usual_threshold:
                raise UserError(
                    f"--learn: how much worse {metric.name} may be is not known; search first, with"
                    " `syncswitch-search run` and --threshold, and learn from its policy"
                )
            return NextRun(None, BASELINE_PERCENT, None, 0)
        return _next_run(database, found[0], uses, goes_back)


def next_use(storage_url: str, policy: TimingPolicy, uses: int) -> NextRun | None:
    """Where the next use of a policy switches; None where it is not `current` in the database.

    Args:
        storage_url: The database.
        policy: The policy.
        uses: How often the job is trained in all, those that are done included.
    """
    with open_database(storage_url, create=False) as database:
        found = PolicyRegistry(database).lookup(policy.fingerprint, alias=CURRENT)
        return _next_run(database, policy, uses) if found == [policy] else None


def _next_run(
    database: Database, policy: TimingPolicy, uses: int, goes_back: bool | None = None
) -> NextRun:
    job = used_job(database, policy, goes_back)
    percent = job.next_percent(uses)
    band = job.band(use_curves(database, policy.fingerprint))
    return NextRun(job.policy, percent, band, len(job.uses), later_switch_points(percent))


def first_policy(
    storage_url: str, identity: WorkloadIdentity, reference: str, record: TrialRecord
) -> TimingPolicy | None:
    """Publishes what the first run of a job found; None where it diverged."""
    if record.diverged:
        return None
    accuracy, usual = record.converged_accuracy, AdaptiveStrategy()
    policy = TimingPolicy(
        fingerprint=identity.fingerprint,
        version=1,
        workload=identity.name,
        workers=identity.workers,
        total_worker_steps=identity.total_worker_steps,
        first_protocol=identity.first_protocol,
        second_protocol=identity.second_protocol,
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
        **identity.decided_by.fields,
    )
    with open_database(storage_url, create=True) as database:
        register_workload(database, identity, reference)
        return PolicyRegistry(database).publish(policy)


def revision_of(
    database: Database,
    policy: TimingPolicy,
    expected_uses: int | None = None,
    goes_back: bool | None = None,
) -> Revision | None:
    """What a version of this database's policies should be left for.

    None where it may stay, or is not `current`; see `UsedJob.revision`.
    """
    current = PolicyRegistry(database).aliases(policy.fingerprint).get(CURRENT)
    if current != policy.version:
        return None
    return used_job(database, policy, goes_back).revision(expected_uses)


def publish_revision(database: Database, policy: TimingPolicy, revision: Revision) -> TimingPolicy:
    """Publishes another switch as a new version, and points `current` at it.

    A version is revised once: whoever else does so at the same moment gets the same new version.
    Other aliases stay where they are.

    Raises PolicyError where `current` was moved meanwhile.
    """
    draft = used_job(database, policy).draft(revision)
    return PolicyRegistry(database).publish(draft, replaces=policy.version)


def used_job(database: Database, policy: TimingPolicy, goes_back: bool | None = None) -> UsedJob:
    """A version with the uses of all.

    Args:
        database: The database.
        policy: The version.
        goes_back: Whether a run that failed goes back to its switch; None for what the searches of
            the job were told, and else for what its failed switches have cost.
    """
    counted = (use for use in uses(database, policy.fingerprint) if is_counted(use))
    job = UsedJob(policy, tuple(counted))
    if goes_back is None:
        searches = TrialStore(database).searches(workload=policy.fingerprint)
        told = [one.options.get("goes_back", True) for one in searches]
        goes_back = all(told) and not job.has_begun_anew
    return replace(job, goes_back=goes_back)


def stored_version(database: Database, policy: TimingPolicy) -> TimingPolicy | None:
    """A policy of a file as this database has it; None where it does not.

    Its version may be another one there.
    """
    versions = PolicyRegistry(database).policies(workload=policy.fingerprint)
    made = (policy.study, policy.created_at)
    return next((one for one in versions if (one.study, one.created_at) == made), None)
