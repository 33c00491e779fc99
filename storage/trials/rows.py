"""Trials as rows, and back."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Table, insert, select, update

from syncswitch.storage.errors import FatalError
from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.trial import PhaseRecord, TrialRecord, TrialSpec, TrialState
from syncswitch.storage.tables.base import add_rows, columns_of
from syncswitch.storage.tables.trials import (
    FAILED_SWITCHES,
    PHASES,
    SEARCHES,
    TRIALS,
    WORKLOADS,
)
from syncswitch.storage.trials.evaluations import add_evaluations
from syncswitch.storage.trials.events import (
    add_events,
    condition_values,
    conditions_of,
    storable_text,
)
from syncswitch.storage.trials.values import Fork, Owner, StoredTrial

_OF_WORKLOAD = {
    "workload": WORKLOADS.c.name,
    "workers": WORKLOADS.c.workers,
    "simulated_cluster": WORKLOADS.c.simulated_cluster,
    "first_protocol": WORKLOADS.c.first_protocol,
    "second_protocol": WORKLOADS.c.second_protocol,
    "total_worker_steps": WORKLOADS.c.total_worker_steps,
}
_JOINED = {"phases", "failed_switches", "conditions"}
_FIELDS = [name for name in StoredTrial.__dataclass_fields__ if name not in _JOINED]
_COLUMNS = [_OF_WORKLOAD[name] if name in _OF_WORKLOAD else TRIALS.c[name] for name in _FIELDS]
_CONDITIONS = (
    TRIALS.c.online,
    TRIALS.c.switch_mechanism,
    TRIALS.c.injections,
)
_COST = ("training_seconds", "inherited_seconds", "switch_overhead_seconds")


def now() -> datetime:
    """This moment."""
    return datetime.now(timezone.utc)


def _locked(connection: Connection, study: str, trial_number: int) -> Row[Any, Any] | None:
    """`trial_id` and state of a trial that nobody else may change until this transaction ends."""
    query = select(TRIALS.c.trial_id, TRIALS.c.state).where(
        TRIALS.c.study == study, TRIALS.c.trial_number == trial_number
    )
    return connection.execute(query.with_for_update()).one_or_none()


def open_trial(connection: Connection, study: str, trial_number: int) -> int | None:
    """The `trial_id` of a trial, which is locked; None where it is complete.

    Raises FatalError where it was never begun.
    """
    row = _locked(connection, study, trial_number)
    if row is None:
        raise FatalError(f"trial {trial_number} of {study!r} was never begun")
    return None if row.state == TrialState.COMPLETE else row.trial_id


def update_trial(connection: Connection, trial_id: int, **values: Any) -> None:
    """Changes some columns of a trial."""
    connection.execute(update(TRIALS).where(TRIALS.c.trial_id == trial_id).values(values))


def _parent_id(connection: Connection, study: str, fork: Fork | None) -> int | None:
    """The `trial_id` of the run that a fork left; None for no fork.

    Raises FatalError where there is no such run.
    """
    if fork is None:
        return None
    query = select(TRIALS.c.trial_id).where(
        TRIALS.c.study == study, TRIALS.c.trial_number == fork.trial_number
    )
    parent: int | None = connection.scalar(query)
    if parent is None:
        raise FatalError(f"no trial {fork.trial_number} of {study!r} to fork from")
    return parent


def begin_trial(
    connection: Connection,
    study: str,
    trial_number: int,
    spec: TrialSpec,
    owner: Owner,
    fork: Fork | None,
    speculative: bool,
) -> None:
    """As `TrialStore.begin`."""
    query = select(SEARCHES.c.fingerprint).where(SEARCHES.c.study == study)
    fingerprint = connection.scalar(query)
    if fingerprint is None or fingerprint != spec.identity.fingerprint:
        raise FatalError(f"no search {study!r} of workload {spec.identity.name} registered")
    parent_trial_id = _parent_id(connection, study, fork)
    row = _locked(connection, study, trial_number)
    if row is not None and row.state == TrialState.COMPLETE:
        raise FatalError(f"trial {trial_number} of {study!r} is already complete")
    moment = now()
    values: dict[str, Any] = {
        "candidate_percent": spec.switch_percent,
        "switch_percent": spec.switch_percent,
        "replicate": spec.replicate,
        "seed": spec.seed,
        "fork_from": str(spec.fork_from) if spec.fork_from else None,
        "parent_trial_id": parent_trial_id,
        "fork_percent": fork.percent if fork else None,
        "speculative": speculative,
        **condition_values(spec.conditions),
        "state": TrialState.RUNNING,
        "worker_steps": 0,
        "started_at": moment,
        "heartbeat_at": moment,
        **asdict(owner),
        # What an earlier attempt cost is forgotten.
        **dict.fromkeys((*_COST, "software", "ended_at", "failure")),
    }
    if row is None:
        named = {"study": study, "trial_number": trial_number, "fingerprint": fingerprint}
        connection.execute(insert(TRIALS).values(**named, **values))
    else:
        update_trial(connection, row.trial_id, **values)


def cost_values(record: TrialRecord) -> dict[str, Any]:
    """The columns that say how far a run came, when and where, and how long it took."""
    names = (*_COST, "worker_steps", "started_at", "ended_at", "host")
    return {name: getattr(record, name) for name in names} | {"software": dict(record.software)}


def result_values(record: TrialRecord) -> dict[str, Any]:
    """The columns of a complete trial that hold what it measured."""
    guard = record.guard
    known = len(record.spec.inherited_evaluations) + len(record.evaluations)
    return {
        **cost_values(record),
        "state": TrialState.COMPLETE,
        "failure": None,
        "converged_accuracy": record.converged_accuracy,
        "converged_evaluations": min(record.converged_evaluations, known),
        "final_accuracy": record.final_accuracy,
        "converged": record.converged,
        "diverged": record.diverged,
        "stopped_early": record.stopped_early,
        "guard": "off" if guard is None else guard.state,
        "held_percent": record.spec.switch_percent if guard is None else guard.held_percent,
    }


def add_parts(connection: Connection, trial_id: int, record: TrialRecord) -> None:
    """Adds the phases, failed switches, events and evaluations of a run to its trial."""
    phases = ({"position": place, **asdict(one)} for place, one in enumerate(record.phases))
    failed = (
        {"position": place, **asdict(one), "alarm": storable_text(one.alarm)}
        for place, one in enumerate(record.guard.failed if record.guard else ())
    )
    add_rows(connection, PHASES, phases, trial_id=trial_id)
    add_rows(connection, FAILED_SWITCHES, failed, trial_id=trial_id)
    add_events(connection, trial_id, record)
    add_evaluations(connection, [(trial_id, record.evaluations)])


def read_trials(connection: Connection, *conditions: ColumnElement[bool]) -> list[StoredTrial]:
    """Trials in the order in which they began; as plain rows, of which there may be 100,000."""
    phases = _parts(connection, PhaseRecord, PHASES, *conditions)
    failed = _parts(connection, FailedSwitch, FAILED_SWITCHES, *conditions)
    trials = select(*_CONDITIONS, *_COLUMNS).join_from(TRIALS, WORKLOADS).where(*conditions)
    found = []
    known = len(_CONDITIONS)
    for row in connection.execute(trials.order_by(TRIALS.c.trial_id)):
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
    connection: Connection,
    kind: type[_Part],
    table: Table,
    *conditions: ColumnElement[bool],
) -> dict[int, list[_Part]]:
    """What trials have several of, in order, by `trial_id`."""
    query = (
        select(table.c.trial_id, *columns_of(kind, table))
        .join(TRIALS, TRIALS.c.trial_id == table.c.trial_id)
        .join(WORKLOADS, WORKLOADS.c.fingerprint == TRIALS.c.fingerprint)
        .where(*conditions)
        .order_by(table.c.trial_id, table.c.position)
    )
    found: dict[int, list[_Part]] = defaultdict(list)
    for trial_id, *values in connection.execute(query):
        found[trial_id].append(kind(*values))
    return found
