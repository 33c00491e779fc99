"""What happened to runs, and what was decided about them while they trained."""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import Select, select

from syncswitch.storage.queries.curves import RUN_KEYS, RunKeys
from syncswitch.storage.queries.trial_filter import TrialChoice, conditions
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import EventRow

_FACTS = TRIAL_FACTS.c


class EventFacts(RunKeys):
    """The columns of `events`: one row per event of a complete run."""

    study: Annotated[str | None, "search it belongs to; null if imported"]
    trial_number: Annotated[int | None, "number in its search; null if imported"]
    position: Annotated[int, "number of the event in its run, from 0"]
    kind: Annotated[str, "what it was, for example detected, removed or lost"]
    worker: Annotated[int | None, "number of the worker; null where it is about no single one"]
    worker_step: Annotated[int, "worker-steps done at that moment"]
    elapsed_seconds: Annotated[float, "training time at that moment"]
    seconds: Annotated[float | None, "how long it took; null where that says nothing"]
    reason: Annotated[str, "why, with figures, for people"]


def events(choice: TrialChoice) -> Select[Any]:
    """Selects the events of trials, those of each in their order.

    Raises:
        UserError: The choice is impossible.
    """
    return (
        select(
            *RUN_KEYS,
            _FACTS.study,
            _FACTS.trial_number,
            EventRow.position,
            EventRow.kind,
            EventRow.worker,
            EventRow.worker_step,
            EventRow.elapsed_seconds,
            EventRow.seconds,
            EventRow.reason,
        )
        .select_from(TRIAL_FACTS)
        .join(EventRow, EventRow.trial_id == _FACTS.trial_id)
        .where(*conditions(choice))
        .order_by(_FACTS.trial_id, EventRow.position)
    )
