"""Copies what the database knows of a job to MLflow."""

from __future__ import annotations

from collections.abc import Sequence

from syncswitch.storage.database.engine import Database
from syncswitch.storage.export.mlflow.policies import put_policies
from syncswitch.storage.export.mlflow.runs import (
    FINISHED,
    KILLED,
    RUNNING,
    RunCopy,
    search_copy,
    trial_copy,
)
from syncswitch.storage.export.mlflow.server import MlflowServer
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.rows import PolicyEntry
from syncswitch.storage.records.job import RegisteredWorkload, WorkloadIdentity
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.uses.store import use_curves, uses

_COMPARISON = "comparison"  # a strategy that publishes no policy


def copy_job(
    database: Database,
    server: MlflowServer,
    workload: RegisteredWorkload,
) -> int:
    """Brings MLflow up to date with the searches, later runs and policies of a job.

    What is under way is copied once it has ended.

    Args:
        database: Is read only.
        server: Gets the copies.
        workload: The job.

    Returns:
        So many runs it has there now.

    Raises:
        RetryableError: MLflow, or the database, does not answer as it should.
    """
    identity = workload.identity
    registry = PolicyRegistry(database)
    entries = registry.entries(workload=identity.fingerprint)
    copies = _searches(database, workload, entries) + _trials(database, identity)
    curves = use_curves(database, identity.fingerprint)
    copies += [
        trial_copy(use, curves.get(use.trial_id, ()), identity.decided_by)
        for use in uses(database, identity.fingerprint)
    ]
    put_policies(server, workload, entries, server.put(identity, copies))
    return len(copies)


def _searches(
    database: Database,
    workload: RegisteredWorkload,
    entries: Sequence[PolicyEntry],
) -> list[RunCopy]:
    """The searches, and one for each policy that none of them published."""
    store, fingerprint = TrialStore(database), workload.identity.fingerprint
    found = {one.study: one for one in store.searches(workload=fingerprint)}
    running = {
        row.study
        for row in store.trials(fingerprint=fingerprint)
        if row.state == TrialState.RUNNING
    }
    published = {entry.policy.study: entry.policy for entry in reversed(entries)}
    copies = []
    for study in (*found, *(name for name in published if name not in found)):
        search, policy = found.get(study), published.get(study)
        is_compared = search is not None and search.strategy == _COMPARISON
        if policy is not None or search is None:
            status = FINISHED
        elif study in running:
            status = RUNNING
        else:
            status = FINISHED if is_compared else KILLED
        started_at = store.registered_at(study)
        copies.append(
            search_copy(study, workload.identity, search, started_at, policy, status=status)
        )
    return copies


def _trials(database: Database, identity: WorkloadIdentity) -> list[RunCopy]:
    store = TrialStore(database)
    curves = store.curves(identity.fingerprint)
    return [
        trial_copy(row, curves.get(row.trial_id, ()), identity.decided_by)
        for row in store.trials(fingerprint=identity.fingerprint)
        if row.study is not None and row.state != TrialState.RUNNING
    ]
