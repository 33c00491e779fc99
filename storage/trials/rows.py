"""Converts trials to rows and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, select

from syncswitch.storage.database.engine import ROWS_AT_ONCE
from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.trial import PhaseRecord, TrialRecord, TrialState
from syncswitch.storage.tables.base import add_rows, columns_of
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import EVENTS, FAILED_SWITCHES, PHASES, TRIALS
from syncswitch.storage.trials.evaluations import add_evaluations
from syncswitch.storage.trials.values import StoredTrial


def storable_text(text: str) -> str:
    """Makes a text that may quote binary output, or an undecodable file name, fit any column."""
    return text.encode(errors="replace").decode().replace("\0", "?")


_PARENT = TRIALS.alias()
_COLUMNS = (
    *TRIAL_FACTS.c,
    _PARENT.c.trial_number.label("parent_trial_number"),
    TRIALS.c.heartbeat_at,
    TRIALS.c.process_id,
    TRIALS.c.process_started_at,
)
COST = ("training_seconds", "inherited_seconds", "switch_overhead_seconds")


def cost_values(record: TrialRecord) -> dict[str, Any]:
    """Returns the columns that say how far a run came, when and where, and how long it took."""
    names = (*COST, "worker_steps", "started_at", "ended_at", "host")
    return {name: getattr(record, name) for name in names} | {"software": dict(record.software)}


def result_values(record: TrialRecord) -> dict[str, Any]:
    """Returns the columns of a complete trial that hold what it measured."""
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
    events = (
        {"position": place, **asdict(one), "reason": storable_text(one.reason)}
        for place, one in enumerate(record.events)
    )
    add_rows(connection, PHASES, phases, trial_id=trial_id)
    add_rows(connection, FAILED_SWITCHES, failed, trial_id=trial_id)
    add_rows(connection, EVENTS, events, trial_id=trial_id)
    add_evaluations(connection, [(trial_id, record.evaluations)])


def read_trials(connection: Connection, *conditions: ColumnElement[bool]) -> Iterator[StoredTrial]:
    """Yields trials in the order in which they were added, in bounded memory.

    The conditions are on the columns of `TRIAL_FACTS`.
    """
    query = (
        select(*_COLUMNS)
        .join(TRIALS, TRIALS.c.trial_id == TRIAL_FACTS.c.trial_id)
        .outerjoin(_PARENT, _PARENT.c.trial_id == TRIAL_FACTS.c.parent_trial_id)
        .where(*conditions)
        .order_by(TRIAL_FACTS.c.trial_id)
    )
    rows = connection.execute(query, execution_options={"yield_per": ROWS_AT_ONCE})
    for block in rows.partitions():
        chosen = (
            TRIAL_FACTS.c.trial_id.between(block[0].trial_id, block[-1].trial_id),
            *conditions,
        )
        phases = _parts(connection, PhaseRecord, PHASES, chosen)
        failed = _parts(connection, FailedSwitch, FAILED_SWITCHES, chosen)
        for row in block:
            yield StoredTrial(
                **row._asdict(),
                phases=tuple(phases.get(row.trial_id, ())),
                failed=tuple(failed.get(row.trial_id, ())),
            )


_Part = TypeVar("_Part", PhaseRecord, FailedSwitch)


def _parts(
    connection: Connection,
    kind: type[_Part],
    table: Table,
    chosen: Sequence[ColumnElement[bool]],
) -> dict[int, list[_Part]]:
    """Returns the phases or failed switches of trials, in order, by `trial_id`."""
    query = (
        select(table.c.trial_id, *columns_of(kind, table))
        .join(TRIAL_FACTS, TRIAL_FACTS.c.trial_id == table.c.trial_id)
        .where(*chosen)
        .order_by(table.c.trial_id, table.c.position)
    )
    found: dict[int, list[_Part]] = defaultdict(list)
    for trial_id, *values in connection.execute(query):
        found[trial_id].append(kind(*values))
    return found
