"""Workloads as rows, and back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone

from sqlalchemy import select
from sqlalchemy.orm import Session

from syncswitch.storage.database.engine import Database
from syncswitch.storage.records.job import RegisteredWorkload, WorkloadIdentity
from syncswitch.storage.tables.base import record_of
from syncswitch.storage.tables.trials import WorkloadRow
from syncswitch.storage.trials.selection import is_workload


def workload_row(workload: RegisteredWorkload) -> WorkloadRow:
    """A new row, registered now."""
    return WorkloadRow(
        fingerprint=workload.identity.fingerprint,
        reference=workload.reference,
        registered_at=datetime.now(timezone.utc),
        metric_name=workload.identity.decided_by.name,
        **asdict(workload.identity),
    )


def upsert_workload(session: Session, identity: WorkloadIdentity, reference: str) -> None:
    """Adds a workload, or brings its names up to date."""
    row = session.get(WorkloadRow, identity.fingerprint)
    if row is None:
        row = workload_row(RegisteredWorkload(identity, reference))
        session.add(row)
    row.name = identity.name
    row.reference = reference
    session.flush()  # the search refers to this row


def register_workload(database: Database, identity: WorkloadIdentity, reference: str) -> None:
    """Makes a workload known that no search has registered, so that it can have policies."""
    database.write(lambda session: upsert_workload(session, identity, reference))


def lock_workload(session: Session, fingerprint: str) -> WorkloadRow | None:
    """Makes writers of one workload take turns, so that each sees what the last one wrote."""
    query = select(WorkloadRow).where(WorkloadRow.fingerprint == fingerprint).with_for_update()
    # What this session has read of it may have changed before it was locked.
    return session.scalars(query, execution_options={"populate_existing": True}).one_or_none()


def read_workloads(session: Session, selector: str) -> list[RegisteredWorkload]:
    """Those with this name, normal reference or start of the fingerprint, newest first."""
    query = (
        select(WorkloadRow)
        .where(is_workload(selector))
        .order_by(WorkloadRow.registered_at.desc(), WorkloadRow.fingerprint)
    )
    return [registered_workload(row) for row in session.scalars(query)]


def registered_workload(row: WorkloadRow) -> RegisteredWorkload:
    """What a row says; the fingerprint is again that of the row."""
    stored = row.learning_rate_boundaries  # JSON has lists alone
    boundaries = None if stored is None else tuple((step, factor) for step, factor in stored)
    identity = record_of(WorkloadIdentity, row, learning_rate_boundaries=boundaries)
    return RegisteredWorkload(identity, row.reference)
