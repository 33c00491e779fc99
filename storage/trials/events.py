"""Events and conditions of trials as rows, and back."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Connection, select

from syncswitch.storage.errors import FatalError
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import RunEvent, TrialRecord
from syncswitch.storage.tables.base import add_rows, columns_of
from syncswitch.storage.tables.trials import EVENTS, TRIALS

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
