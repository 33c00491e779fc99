"""Which trials somebody asks for; the database makes the choice."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypedDict, cast

from sqlalchemy import BindParameter, ColumnElement, bindparam, select

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import WORKLOADS
from syncswitch.storage.trials.workloads import is_workload

STATES = tuple(str(state) for state in TrialState if state != TrialState.STALE)
"""The states of a trial, as stored."""

KINDS = ("search", "import", "use")
"""Who made a trial: a search, somebody elsewhere, or a user with a policy."""

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class RunChoice(TypedDict, total=False):
    """A choice of runs: those for which all that is given, and is not None, holds.

    Attributes:
        workload: Name, normal reference, or start of the fingerprint (8 digits or more).
        fingerprint: The whole of it.
        study: Name of the search; imported runs have none.
        since: Begun at this moment or later. A run of unknown time is left out, here and next.
        until: Begun before this moment.
    """

    workload: str | None
    fingerprint: str | None
    study: str | None
    since: datetime | None
    until: datetime | None


class TrialChoice(RunChoice, total=False):
    """A choice of trials, running and failed ones included.

    Attributes:
        kinds: One of these: `search`, `import`, `use`.
        trial_number: Number in its search; of several searches there may be several.
        state: As stored: `running`, `complete` or `failed`.
        candidate_percent: Switch point that the run counts for.
        trial_ids: One of these.
    """

    kinds: Iterable[str] | None
    trial_number: int | None
    state: str | None
    candidate_percent: float | None
    trial_ids: Iterable[int] | None


def conditions(
    choice: Mapping[str, object], allowed: type[RunChoice] = TrialChoice
) -> list[ColumnElement[bool]]:
    """A `RunChoice` or a `TrialChoice` in SQL, on the columns of `TRIAL_FACTS`.

    Raises UserError where a name is unknown, or a value is true of no trial.
    """
    names = sorted(allowed.__annotations__)
    for name in choice:
        if name not in names:
            raise UserError(f"{name!r} chooses no runs; allowed: {', '.join(names)}")
    given = cast(TrialChoice, {name: v for name, v in choice.items() if v is not None})
    _check(given)
    facts = TRIAL_FACTS.c
    wanted: list[ColumnElement[bool]] = []
    workload = given.get("workload")
    if workload is not None:
        known = select(WORKLOADS.c.fingerprint).where(is_workload(workload))
        wanted.append(facts.fingerprint.in_(known))
    for name in ("fingerprint", "study", "trial_number", "state", "candidate_percent"):
        if name in given:
            wanted.append(facts[name] == choice[name])
    if "since" in given:
        wanted.append(facts.started_at >= given["since"])
    if "until" in given:
        wanted.append(facts.started_at < given["until"])
    kinds = given.get("kinds")
    if kinds is not None:
        wanted.append(facts.kind.in_(_known(tuple(kinds))))
    numbers = given.get("trial_ids")
    if numbers is not None:
        wanted.append(facts.trial_id.in_(_written(numbers)))
    return wanted


def _written(numbers: Iterable[int]) -> BindParameter[int]:
    """Numbers as text of the statement: databases bind some ten thousand values at most."""
    plain = [operator.index(number) for number in numbers]
    return bindparam(None, plain, expanding=True, literal_execute=True)


def _known(kinds: tuple[str, ...]) -> tuple[str, ...]:
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"{kind!r} is no kind of trial; allowed: {', '.join(KINDS)}")
    return kinds


def _check(given: TrialChoice) -> None:
    fingerprint = given.get("fingerprint")
    if fingerprint is not None and not _FINGERPRINT.fullmatch(fingerprint):
        raise UserError(
            f"fingerprint is {fingerprint!r}; allowed: all its 64 digits (0-9, a-f); the start of"
            f" one can be given as workload"
        )
    state = given.get("state")
    if state is not None and state not in STATES:
        raise UserError(f"state is {state!r}; allowed: {', '.join(STATES)}")
    percent = given.get("candidate_percent")
    if percent is not None and not 0 <= percent <= 100:
        raise UserError(f"candidate_percent is {percent}; allowed: 0 to 100")
    for name in ("since", "until"):
        moment = given.get(name)
        if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
            raise UserError(
                f"{name} is {str(moment)!r}; allowed: a datetime with a time zone, for example"
                f" datetime(2026, 1, 31, tzinfo=timezone.utc)"
            )
