"""The next training of a job that is learnt from its trainings, and the policies on that way.

The first run uses the first protocol alone. It is published as a policy that says so, on which the
runs after it are recorded as uses, whatever their switch. Once the answer of a search is there, it
is published as the next version, with which all others train.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from syncswitch.searcher.learning.assessment import LearningAssessment, next_use
from syncswitch.searcher.learning.job import UsedJob
from syncswitch.searcher.learning.live import used_job
from syncswitch.searcher.results.band import measured_band
from syncswitch.searcher.strategies.base import Decided, NextTrial
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import PolicyError, UserError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.rows import CURRENT
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.guard import Band, later_switch_points
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord
from syncswitch.storage.records.use import NextRun
from syncswitch.storage.trials.workloads import register_workload
from syncswitch.storage.uses.store import use_curves

_THRESHOLD = 0.01
# A policy that is good with less is not sure enough to end the learning.
_SURE = 0.7
_FIRST = "nothing but the first protocol alone was tried so far"


def next_run(storage_url: str, identity: WorkloadIdentity, uses: int) -> NextRun:
    """Where the next training of a job switches; it makes the database if need be.

    Args:
        storage_url: The database.
        identity: The job.
        uses: How often it is trained in all, those that are done included.

    Raises:
        UserError: Nobody knows how much of the job's metric may be lost.
    """
    with open_database(storage_url, create=True) as database:
        policy = _current(database, identity.fingerprint)
        if policy is None:
            _check_metric(identity.decided_by)
            return NextRun(None, BASELINE_PERCENT, None, 0)
        job = used_job(database, policy)
        band = job.band(use_curves(database, identity.fingerprint))
        done = len(job.uses)
        if _is_answer(policy):
            return _run_of(policy, policy.switch_percent, band, done)
        decision = _decision(job, uses, uses - done)
        if isinstance(decision, NextTrial):
            return _run_of(policy, decision.switch_percent, band, done)
        study = f"learning-{identity.fingerprint[:12]}-{policy.version}"
        draft = replace(job.draft(decision, study, decision.reason), band=band)
        try:
            answer = PolicyRegistry(database).publish(draft, replaces=policy.version)
        except PolicyError:  # somebody else moved `current` at this moment, so that counts
            answer = _current(database, identity.fingerprint) or policy
        return _run_of(answer, answer.switch_percent, band, done)


def _run_of(policy: TimingPolicy, percent: float, band: Band | None, number: int) -> NextRun:
    return NextRun(policy, percent, band, number, later_switch_points(percent))


def _check_metric(metric: Metric) -> None:
    if not metric.has_usual_threshold:
        raise UserError(
            f"--learn: how much worse {metric.name} may be is not known; search first, with"
            " `syncswitch-search run` and --threshold, and learn from its policy"
        )


def first_policy(
    storage_url: str, identity: WorkloadIdentity, reference: str, record: TrialRecord
) -> TimingPolicy | None:
    """Publishes what the first run of a job found; None where it diverged."""
    if record.diverged:
        return None
    accuracy = record.converged_accuracy
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
        threshold=_THRESHOLD,
        mean_accuracy=accuracy,
        training_seconds=record.training_seconds,
        baseline_seconds=record.training_seconds,
        strategy="adaptive",
        study=f"learning-{identity.fingerprint[:12]}",
        evidence=(),
        created_at=datetime.now(timezone.utc).isoformat(),
        software=software_versions(),
        guarded=True,
        reason=_FIRST,
        band=measured_band(accuracy, _THRESHOLD, [record.evaluations]),
        **identity.decided_by.fields,
    )
    with open_database(storage_url, create=True) as database:
        register_workload(database, identity, reference)
        return PolicyRegistry(database).publish(policy)


def _current(database: Database, fingerprint: str) -> TimingPolicy | None:
    found = PolicyRegistry(database).lookup(fingerprint, alias=CURRENT)
    return found[0] if found else None


def _is_answer(policy: TimingPolicy) -> bool:
    """Whether it needs no more runs; one of a search that was not sure does."""
    if policy.reason == _FIRST:
        return False
    is_learnt = policy.study.startswith(("learning-", "revision-"))
    return is_learnt or policy.confidence is None or policy.confidence >= _SURE


def _decision(job: UsedJob, uses: int, left: int) -> NextTrial | Decided:
    strategy, runs = job.strategy(uses), job.observations()
    if left <= 0 and runs:
        return LearningAssessment(strategy, runs).answer()
    decision = next_use(strategy, runs, left)
    assert isinstance(decision, NextTrial | Decided)  # it never waits
    return decision
