"""Imports timing policies of other databases from policy files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone

from sqlalchemy import Connection, String, Table, select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.file import PolicyFile, job_mismatch
from syncswitch.storage.policies.registry import (
    CURRENT,
    add_version,
    point,
    pointed_at,
    read_policies,
)
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.tables.policies import EVIDENCE, POLICIES
from syncswitch.storage.tables.trials import WORKLOADS
from syncswitch.storage.trials.workloads import add_workload, lock_workload, registered_workload


@dataclass(frozen=True, slots=True)
class ImportedPolicy:
    """What this database has of one file now; if the policy is not new, it was there already."""

    policy: TimingPolicy
    is_new: bool
    current_version: int
    identity: WorkloadIdentity


def import_policies(database: Database, files: Sequence[PolicyFile]) -> list[ImportedPolicy]:
    """Adds each file's policy as the next version of its workload: all of them, or none.

    A policy is recognized by its fingerprint, study and time of creation; one that is there already
    stays as it is. An unknown workload is registered, a known one keeps its name and reference.

    Raises:
        PolicyError: A policy that is there says something else.
    """
    for file in files:
        _check_texts(file)

    def operation(connection: Connection) -> list[ImportedPolicy]:
        # In one order, so that two imports cannot wait for each other.
        identities = {
            file.policy.fingerprint: _register_and_lock(connection, file)
            for file in sorted(files, key=lambda file: file.policy.fingerprint)
        }
        added = [_add(connection, file) for file in files]
        return [
            ImportedPolicy(
                policy,
                is_new,
                pointed_at(connection, policy.fingerprint, CURRENT) or policy.version,
                identities[policy.fingerprint],
            )
            for policy, is_new in added
        ]

    return database.write(operation)


def _check_texts(file: PolicyFile) -> None:
    """Refuses texts that are too long for a column, which only PostgreSQL would refuse itself."""
    values: list[tuple[Table, dict[str, object]]] = [(POLICIES, asdict(file.policy))]
    values += [(EVIDENCE, asdict(run)) for run in file.policy.evidence]
    workload = {**asdict(file.workload.identity), "reference": file.workload.reference}
    values.append((WORKLOADS, workload))
    for table, row in values:
        for column in table.columns:
            text = row.get(column.name)
            if not isinstance(column.type, String) or not isinstance(text, str):
                continue
            longest = column.type.length
            if "\0" in text or (longest is not None and len(text) > longest):
                raise PolicyError(
                    f"policy file {file.path}: {column.name} {text[:40]!r} has {len(text)}"
                    f" characters; allowed: {longest or 'any number'}, none of them NUL"
                )


def _register_and_lock(connection: Connection, file: PolicyFile) -> WorkloadIdentity:
    """Registers the workload of a policy if need be, locks it, and returns it."""
    fingerprint = file.policy.fingerprint
    row = lock_workload(connection, fingerprint)
    if row is None:
        add_workload(connection, file.workload)
        identity = file.workload.identity
    else:
        identity = registered_workload(row).identity
    mismatch = job_mismatch(file.policy, identity)
    if mismatch:
        raise PolicyError(f"policy file {file.path} was altered: {mismatch}")
    return identity


def _add(connection: Connection, file: PolicyFile) -> tuple[TimingPolicy, bool]:
    """Returns the policy as it is in the database then, and whether it is new there."""
    fingerprint = file.policy.fingerprint
    created_at = datetime.fromisoformat(file.policy.created_at).astimezone(timezone.utc)
    query = select(POLICIES).where(
        POLICIES.c.fingerprint == fingerprint,
        POLICIES.c.study == file.policy.study,
        POLICIES.c.created_at == created_at,
    )
    there = [policy for _, policy in read_policies(connection, query)]
    policy = there[0] if there else add_version(connection, file.policy, datetime.now(timezone.utc))
    stated = replace(file.policy, version=policy.version, created_at=created_at.isoformat())
    if policy != stated:
        raise PolicyError(
            f"policy file {file.path} was altered: its policy is in this database already, as"
            f" version {policy.version} of workload {fingerprint[:12]}, and says something else;"
            f" see `syncswitch-search policy diff {fingerprint[:12]}@{policy.version} {file.path}`"
        )
    if pointed_at(connection, fingerprint, CURRENT) is None:
        point(connection, fingerprint, CURRENT, policy.version)
    return policy, not there
