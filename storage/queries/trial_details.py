"""Trials as wide rows, read one after the other: years of them do not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, Select, select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.queries.trial_filter import TrialChoice, conditions
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import BASELINE_PERCENT, PhaseRecord, TrialState
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import PHASES, TRIALS
from syncswitch.storage.trials.values import CANCELLED, INTERRUPTED, Fork, Owner

if TYPE_CHECKING:
    from typing_extensions import Unpack


_PHASE = tuple(PhaseRecord.__dataclass_fields__)
_PARENT = TRIALS.alias()


@dataclass(frozen=True, slots=True)
class TrialDetails:
    """A trial with all that is known of it but its evaluations.

    Attributes:
        facts: By column of `TRIAL_FACTS`.
        heartbeat_at: When the owner last reported.
        phases: In their order; of a fork those that it ran itself.
        fork: Where it left another run of its search; None for a run from fresh parameters.
    """

    facts: dict[str, Any]
    owner: Owner | None
    heartbeat_at: datetime | None
    phases: tuple[PhaseRecord, ...]
    fork: Fork | None

    @property
    def state(self) -> TrialState:
        """As stored."""
        return TrialState(self.facts["state"])

    @property
    def end(self) -> str | None:
        """How it ended; None for a run that failed or still runs.

        `whole`, `stopped` or `diverged`; `cancelled` if it was no longer needed, `interrupted` if
        somebody pressed Ctrl-C.
        """
        if self.facts["failure"] == CANCELLED:
            return "cancelled"
        if self.facts["failure"] == INTERRUPTED:
            return "interrupted"
        if self.state != TrialState.COMPLETE:
            return None
        if self.facts["diverged"]:
            return "diverged"
        return "stopped" if self.facts["stopped_early"] else "whole"


def trial_facts(choice: TrialChoice) -> Select[Any]:
    """Selects the columns of `TRIAL_FACTS`, in the order in which the trials were added.

    Raises UserError where the choice is impossible.
    """
    return select(TRIAL_FACTS).where(*conditions(choice)).order_by(TRIAL_FACTS.c.trial_id)


def times_alone(database: Database, fingerprint: str, host: str | None) -> list[float]:
    """Training times in seconds of a job's undisturbed runs with the first protocol alone.

    Uses of policies are among them, in the order in which all were added; `host` None is for any.
    """
    facts = TRIAL_FACTS.c
    usual = RunConditions()
    query = (
        select(facts.whole_run_seconds)
        .where(
            facts.fingerprint == fingerprint,
            facts.switch_percent >= BASELINE_PERCENT,
            facts.online == usual.online,
            facts.switch_mechanism == usual.switch_mechanism,
            facts.injections.is_(None),
            facts.whole_run_seconds.is_not(None),
        )
        .order_by(facts.trial_id)
    )
    if host is not None:
        query = query.where(facts.host == host)
    with database.transaction(read_only=True) as connection:
        return list(connection.scalars(query))


def trial_details(database: Database, **choice: Unpack[TrialChoice]) -> Iterator[TrialDetails]:
    """The trials in the order in which they were added; all are of the same moment.

    The transaction is open until the last one was taken. Raises UserError where the choice is
    impossible.
    """
    query = (
        trial_facts(choice)
        .add_columns(
            TRIALS.c.process_id,
            TRIALS.c.process_started_at,
            TRIALS.c.heartbeat_at,
            _PARENT.c.trial_number.label("parent_trial_number"),
            PHASES.c.position,
            *(PHASES.c[name].label(f"phase_{name}") for name in _PHASE),
        )
        .join(TRIALS, TRIALS.c.trial_id == TRIAL_FACTS.c.trial_id)
        .outerjoin(_PARENT, _PARENT.c.trial_id == TRIAL_FACTS.c.parent_trial_id)
        .outerjoin(PHASES, PHASES.c.trial_id == TRIAL_FACTS.c.trial_id)
        .order_by(PHASES.c.position)
    )
    rows = chain.from_iterable(database.row_blocks(query))
    return (_details(list(group)) for _, group in groupby(rows, key=lambda row: row.trial_id))


def _details(rows: list[Row[Any]]) -> TrialDetails:
    """A trial of its rows: one for each phase, or one without any."""
    first = rows[0]._mapping
    facts = {name: first[name] for name in TRIAL_FACTS.c.keys()}  # noqa: SIM118 (no dictionary)
    parent = first["parent_trial_number"]
    known = None not in (facts["host"], first["process_id"], first["process_started_at"])
    return TrialDetails(
        facts=facts,
        owner=Owner(facts["host"], first["process_id"], first["process_started_at"])
        if known
        else None,
        heartbeat_at=first["heartbeat_at"],
        phases=tuple(
            PhaseRecord(**{name: row._mapping[f"phase_{name}"] for name in _PHASE})
            for row in rows
            if row.position is not None
        ),
        fork=None if parent is None else Fork(parent, facts["fork_percent"]),
    )
