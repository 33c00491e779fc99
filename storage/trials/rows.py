"""Trials as rows, and back."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, select

from syncswitch.storage.errors import FatalError
from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import (
    PhaseRecord,
    RunEvent,
    TrialRecord,
    TrialState,
)
from syncswitch.storage.tables.base import add_rows, columns_of
from syncswitch.storage.tables.trials import (
    EVENTS,
    FAILED_SWITCHES,
    PHASES,
    TRIALS,
    WORKLOADS,
)
from syncswitch.storage.trials.evaluations import add_evaluations
from syncswitch.storage.trials.values import StoredTrial

_SEPARATOR = "; "


def storable_text(text: str) -> str:
    """A text that may quote a file name that is no Unicode, or binary output, for any column."""
    return text.encode(errors="replace").decode().replace("\0", "?")


def condition_values(conditions: RunConditions) -> dict[str, str | None]:
    """The columns of a trial that say under which conditions it runs.

    Raises FatalError where the text of an injection holds what separates them.
    """
    if any(_SEPARATOR in text or not text for text in conditions.injections):
        raise FatalError(f"injections {conditions.injections} cannot be told apart when joined")
    return {
        "online": conditions.online,
        "switch_mechanism": conditions.switch_mechanism,
        "injections": _SEPARATOR.join(conditions.injections) or None,
    }


def conditions_of(online: str, switch_mechanism: str, injections: str | None) -> RunConditions:
    """The conditions that these columns stand for."""
    separate = tuple(injections.split(_SEPARATOR)) if injections else ()
    return RunConditions(online, switch_mechanism, separate)


def add_events(connection: Connection, trial_id: int, record: TrialRecord) -> None:
    """Adds the events of a run, in their order, to its trial, which the database has."""
    rows = (
        {"position": position, **asdict(event), "reason": storable_text(event.reason)}
        for position, event in enumerate(record.events)
    )
    add_rows(connection, EVENTS, rows, trial_id=trial_id)


def read_events(connection: Connection, study: str, trial_number: int) -> list[RunEvent]:
    """Events of a complete trial in their order."""
    query = (
        select(*columns_of(RunEvent, EVENTS))
        .join(TRIALS, TRIALS.c.trial_id == EVENTS.c.trial_id)
        .where(TRIALS.c.study == study, TRIALS.c.trial_number == trial_number)
        .order_by(EVENTS.c.position)
    )
    return [RunEvent(*values) for values in connection.execute(query)]


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
COST = ("training_seconds", "inherited_seconds", "switch_overhead_seconds")


def cost_values(record: TrialRecord) -> dict[str, Any]:
    """The columns that say how far a run came, when and where, and how long it took."""
    names = (*COST, "worker_steps", "started_at", "ended_at", "host")
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
    """The phases or failed switches of trials, in order, by `trial_id`."""
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
