"""Trials as rows, and back."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TypeVar

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from syncswitch.storage.errors import FatalError
from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.trial import PhaseRecord, TrialRecord, TrialSpec, TrialState
from syncswitch.storage.tables.base import columns_of
from syncswitch.storage.tables.trials import (
    FailedSwitchRow,
    PhaseRow,
    SearchRow,
    TrialRow,
    WorkloadRow,
)
from syncswitch.storage.trials.events import condition_values, conditions_of, storable_text
from syncswitch.storage.trials.values import Fork, Owner, StoredTrial

_OF_WORKLOAD = {
    "workload": WorkloadRow.name,
    "workers": WorkloadRow.workers,
    "simulated_cluster": WorkloadRow.simulated_cluster,
    "first_protocol": WorkloadRow.first_protocol,
    "second_protocol": WorkloadRow.second_protocol,
    "total_worker_steps": WorkloadRow.total_worker_steps,
}
_JOINED = {"phases", "failed_switches", "conditions"}
_FIELDS = [name for name in StoredTrial.__dataclass_fields__ if name not in _JOINED]
_COLUMNS = [
    _OF_WORKLOAD[name] if name in _OF_WORKLOAD else getattr(TrialRow, name) for name in _FIELDS
]
_CONDITIONS = (
    TrialRow.online,
    TrialRow.switch_mechanism,
    TrialRow.injections,
)
_COST = ("training_seconds", "inherited_seconds", "switch_overhead_seconds")


def now() -> datetime:
    """This moment."""
    return datetime.now(timezone.utc)


def _locked_row(session: Session, study: str, trial_number: int) -> TrialRow | None:
    """The row of a trial, which nobody else may change until this transaction ends."""
    query = select(TrialRow).where(TrialRow.study == study, TrialRow.trial_number == trial_number)
    return session.scalars(query.with_for_update()).one_or_none()


def begun_row(session: Session, study: str, trial_number: int) -> TrialRow:
    """The same of a trial that has to be there. Raises FatalError where it was never begun."""
    row = _locked_row(session, study, trial_number)
    if row is None:
        raise FatalError(f"trial {trial_number} of {study!r} was never begun")
    return row


def _parent_id(session: Session, study: str, fork: Fork | None) -> int | None:
    """The `trial_id` of the run that a fork left; None for no fork.

    Raises FatalError where there is no such run.
    """
    if fork is None:
        return None
    query = select(TrialRow.trial_id).where(
        TrialRow.study == study, TrialRow.trial_number == fork.trial_number
    )
    parent = session.scalar(query)
    if parent is None:
        raise FatalError(f"no trial {fork.trial_number} of {study!r} to fork from")
    return parent


def begin_trial(
    session: Session,
    study: str,
    trial_number: int,
    spec: TrialSpec,
    owner: Owner,
    fork: Fork | None,
    speculative: bool,
) -> None:
    """As `TrialStore.begin`."""
    search = session.get(SearchRow, study)
    if search is None or search.fingerprint != spec.identity.fingerprint:
        raise FatalError(f"no search {study!r} of workload {spec.identity.name} registered")
    parent_trial_id = _parent_id(session, study, fork)
    row = _locked_row(session, study, trial_number)
    if row is None:
        row = TrialRow(study=study, trial_number=trial_number, fingerprint=search.fingerprint)
        session.add(row)
    elif row.state == TrialState.COMPLETE:
        raise FatalError(f"trial {trial_number} of {study!r} is already complete")
    _begin_row(row, spec, owner)
    row.parent_trial_id = parent_trial_id
    row.fork_percent = fork.percent if fork else None
    row.speculative = speculative


def _begin_row(row: TrialRow, spec: TrialSpec, owner: Owner) -> None:
    """Fills in what is asked for and who runs it; forgets what an earlier attempt cost."""
    row.switch_percent = row.candidate_percent = spec.switch_percent
    row.replicate = spec.replicate
    row.seed = spec.seed
    row.fork_from = str(spec.fork_from) if spec.fork_from else None
    for name, value in condition_values(spec.conditions).items():
        setattr(row, name, value)
    row.state = TrialState.RUNNING
    row.worker_steps = 0
    row.started_at = row.heartbeat_at = now()
    row.host = owner.host
    row.process_id = owner.process_id
    row.process_started_at = owner.process_started_at
    for name in (*_COST, "software", "ended_at", "failure"):
        setattr(row, name, None)


def fill_cost(row: TrialRow, record: TrialRecord) -> None:
    """Fills in how far the run came, when and where, and how long it took."""
    for name in (*_COST, "worker_steps", "started_at", "ended_at", "host"):
        setattr(row, name, getattr(record, name))
    row.software = dict(record.software)


def fill_result(session: Session, row: TrialRow, record: TrialRecord) -> None:
    """Makes the trial complete: fills in all that it measured, its phases and failed switches."""
    fill_cost(row, record)
    row.state = TrialState.COMPLETE
    row.failure = None
    row.converged_accuracy = record.converged_accuracy
    known = len(record.spec.inherited_evaluations) + len(record.evaluations)
    row.converged_evaluations = min(record.converged_evaluations, known)
    row.final_accuracy = record.final_accuracy
    row.converged = record.converged
    row.diverged = record.diverged
    row.stopped_early = record.stopped_early
    guard = record.guard
    row.guard = "off" if guard is None else guard.state
    row.held_percent = record.spec.switch_percent if guard is None else guard.held_percent
    session.flush()  # the others refer to this row
    session.add_all(
        FailedSwitchRow(
            trial_id=row.trial_id,
            position=position,
            **{**asdict(failed), "alarm": storable_text(failed.alarm)},
        )
        for position, failed in enumerate(guard.failed if guard else ())
    )
    session.add_all(
        PhaseRow(trial_id=row.trial_id, position=position, **asdict(phase))
        for position, phase in enumerate(record.phases)
    )


def read_trials(session: Session, *conditions: ColumnElement[bool]) -> list[StoredTrial]:
    """Trials in the order in which they began; as plain rows, of which there may be 100,000."""
    phases = _parts(session, PhaseRecord, PhaseRow, *conditions)
    failed = _parts(session, FailedSwitch, FailedSwitchRow, *conditions)
    trials = select(*_CONDITIONS, *_COLUMNS).join(TrialRow.workload).where(*conditions)
    found = []
    known = len(_CONDITIONS)
    for row in session.execute(trials.order_by(TrialRow.trial_id)):
        fields = dict(zip(_FIELDS, row[known:], strict=True))
        found.append(
            StoredTrial(
                phases=tuple(phases.get(fields["trial_id"], ())),
                failed_switches=tuple(failed.get(fields["trial_id"], ())),
                conditions=conditions_of(*row[:known]),
                **fields,
            )
        )
    return found


_Part = TypeVar("_Part", PhaseRecord, FailedSwitch)


def _parts(
    session: Session,
    kind: type[_Part],
    table: type[PhaseRow | FailedSwitchRow],
    *conditions: ColumnElement[bool],
) -> dict[int, list[_Part]]:
    """What trials have several of, in order, by `trial_id`."""
    query = (
        select(table.trial_id, *columns_of(kind, table))
        .join(TrialRow, TrialRow.trial_id == table.trial_id)
        .join(TrialRow.workload)
        .where(*conditions)
        .order_by(table.trial_id, table.position)
    )
    found: dict[int, list[_Part]] = defaultdict(list)
    for trial_id, *values in session.execute(query):
        found[trial_id].append(kind(*values))
    return found
