"""Copies what the database knows of a job to MLflow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from syncswitch.storage.database.engine import Database
from syncswitch.storage.export.mlflow.runs import (
    FINISHED,
    KILLED,
    RUNNING,
    RunCopy,
    search_copy,
    search_key,
    trial_copy,
)
from syncswitch.storage.export.mlflow.server import FINGERPRINT, MlflowServer
from syncswitch.storage.policies.file import policy_text
from syncswitch.storage.policies.registry import PolicyEntry, PolicyRegistry
from syncswitch.storage.records.job import RegisteredWorkload, WorkloadIdentity
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.uses.store import use_curves, uses

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion


_VERSION = "syncswitch.policy_version"
# MLflow keeps them for itself.
_RESERVED = re.compile(r"latest|v\d+")


def model_name(identity: WorkloadIdentity) -> str:
    """Name of the registered model whose versions are the policies of a job."""
    name = re.sub(r"[/:]", "-", identity.name)
    return f"syncswitch-{name}-{identity.fingerprint[:8]}"


def put_policies(
    server: MlflowServer,
    workload: RegisteredWorkload,
    entries: Sequence[PolicyEntry],
    runs: Mapping[str, str],
) -> None:
    """Brings the policies of a job and their aliases up to date.

    Args:
        server: Gets them.
        workload: That they are for.
        entries: All its policies.
        runs: Identifier of the run on MLflow by the key of the search.

    Raises:
        RetryableError: The server does not answer as it should.
    """
    if not entries:
        return
    try:
        _put(server, workload, entries, runs)
    except Exception as error:
        raise server.away(error) from error


def _put(
    server: MlflowServer,
    workload: RegisteredWorkload,
    entries: Sequence[PolicyEntry],
    runs: Mapping[str, str],
) -> None:
    client, name = server.client, model_name(workload.identity)
    if not client.search_registered_models(f"name = '{name}'", max_results=1):
        client.create_registered_model(
            name,
            tags={FINGERPRINT: workload.identity.fingerprint},
            description=f"Timing policies of {workload.identity.name} on"
            f" {workload.identity.cluster}: when to switch. Each version holds a policy file for"
            " syncswitch-run --policy.",
        )
    known = _versions(server, name)
    for entry in sorted(entries, key=lambda entry: entry.policy.version):
        version = entry.policy.version
        if version not in known:
            run_id = runs[search_key(entry.policy.study)]
            known[version] = _add_version(server, workload, entry, run_id)
    aliases = client.get_registered_model(name).aliases
    for entry in entries:
        number = known[entry.policy.version]
        for alias in entry.aliases:
            if not _RESERVED.fullmatch(alias) and str(aliases.get(alias)) != number:
                client.set_registered_model_alias(name, alias, number)


def _versions(server: MlflowServer, name: str) -> dict[int, str]:
    """MLflow's number by ours; they differ only where somebody else added or removed some."""
    found: dict[int, list[ModelVersion]] = {}
    for one in server.client.search_model_versions(f"name = '{name}'"):
        if _VERSION in one.tags:
            found.setdefault(int(one.tags[_VERSION]), []).append(one)
    chosen = {}
    for version, copies in found.items():
        first, *others = sorted(copies, key=lambda one: int(one.version))
        chosen[version] = str(first.version)
        for other in others:  # somebody else copied it at the same moment
            server.client.delete_model_version(name, str(other.version))
    return chosen


def _add_version(
    server: MlflowServer, workload: RegisteredWorkload, entry: PolicyEntry, run_id: str
) -> str:
    policy, client = entry.policy, server.client
    folder = f"policy-{policy.version}"
    client.log_text(run_id, policy_text(policy, workload), f"{folder}/policy.json")
    first, second = policy.first_protocol.upper(), policy.second_protocol.upper()
    made = client.create_model_version(
        model_name(workload.identity),
        f"runs:/{run_id}/{folder}",
        run_id,
        tags={
            _VERSION: str(policy.version),
            "syncswitch.switch_percent": f"{policy.switch_percent:g}",
            "syncswitch.study": policy.study,
        },
        description=f"{first} for the first {policy.switch_percent:g} % of"
        f" {policy.total_worker_steps:,} worker-steps, then {second}",
        await_creation_for=None,
    )
    return str(made.version)


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
