"""The choice of trials by keywords, which the database makes."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypedDict, cast

from sqlalchemy import BindParameter, ColumnElement, bindparam, select

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import Protocols
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialState
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import WORKLOADS
from syncswitch.storage.trials.workloads import is_workload

KINDS = ("search", "import", "use")
"""Who made a trial: a search, somebody elsewhere, or a user with a policy."""

_FACTS = TRIAL_FACTS.c
# The one column of these that a trial of each kind has; unlike `kind`, they are indexed.
_COLUMN_OF_KIND = dict(zip(KINDS, (_FACTS.study, _FACTS.source, _FACTS.use_id), strict=True))
_STATES = tuple(str(state) for state in TrialState if state != TrialState.STALE)
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class JobChoice(TypedDict, total=False):
    """A choice of jobs.

    Attributes:
        workload: Name, normal reference, or start of the fingerprint (8 digits or more).
        fingerprint: The whole fingerprint.
    """

    workload: str | None
    fingerprint: str | None


class SearchChoice(JobChoice, total=False):
    """A choice of searches.

    Attributes:
        study: Name of the search.
    """

    study: str | None


class RunChoice(SearchChoice, total=False):
    """A choice of runs: those that match every value that is given and not None.

    Attributes:
        since: Runs that began at this moment or later. A run whose beginning is unknown matches
            neither this nor `until`.
        until: Runs that began before this moment.
    """

    since: datetime | None
    until: datetime | None


class TrialChoice(RunChoice, total=False):
    """A choice of trials, running and failed ones included.

    Attributes:
        kinds: Any of `search`, `import`, `use`.
        trial_number: Number in its search; several searches may each have one.
        state: The stored state: `running`, `complete` or `failed`.
        candidate_percent: Switch point that the run counts for.
        trial_ids: Numbers in the database.
    """

    kinds: Iterable[str] | None
    trial_number: int | None
    state: str | None
    candidate_percent: float | None
    trial_ids: Iterable[int] | None


def conditions(
    choice: Mapping[str, object], allowed: type[RunChoice] = TrialChoice
) -> list[ColumnElement[bool]]:
    """Returns a `RunChoice` or `TrialChoice` as conditions on the columns of `TRIAL_FACTS`.

    Raises UserError if a keyword is unknown, or if no trial can have a value.
    """
    names = sorted(allowed.__annotations__)
    for name in choice:
        if name not in names:
            raise UserError(
                f"{name!r} does not select runs; allowed: {', '.join(names)}",
                code="parameter-invalid",
            )
    given = cast(TrialChoice, {name: v for name, v in choice.items() if v is not None})
    _check(given)
    wanted: list[ColumnElement[bool]] = []
    workload, kinds, numbers = given.get("workload"), given.get("kinds"), given.get("trial_ids")
    if workload is not None:
        known = select(WORKLOADS.c.fingerprint).where(is_workload(workload))
        wanted.append(_FACTS.fingerprint.in_(known))
    for name in ("fingerprint", "study", "trial_number", "state", "candidate_percent"):
        if name in given:
            wanted.append(_FACTS[name] == choice[name])
    if "since" in given:
        wanted.append(_FACTS.started_at >= given["since"])
    if "until" in given:
        wanted.append(_FACTS.started_at < given["until"])
    if kinds is not None:
        wanted += _are_of(set(kinds))
    if numbers is not None:
        # Written into the statement: databases bind some ten thousand values at most.
        plain = [operator.index(number) for number in numbers]
        listed: BindParameter[int] = bindparam(None, plain, expanding=True, literal_execute=True)
        wanted.append(_FACTS.trial_id.in_(listed))
    return wanted


def are_with(protocols: Protocols) -> ColumnElement[bool]:
    """Selects the runs with these protocols, and those with the first one alone."""
    never_switch = _FACTS.switch_percent == BASELINE_PERCENT
    rule = _FACTS.momentum_after_switch.is_not_distinct_from(protocols.momentum_after_switch)
    switch_alike = (_FACTS.second_protocol == protocols.second_protocol) & rule
    return (_FACTS.first_protocol == protocols.first_protocol) & (never_switch | switch_alike)


def _are_of(kinds: set[str]) -> list[ColumnElement[bool]]:
    for kind in kinds - {*KINDS}:
        raise UserError(
            f"{kind!r} is not a kind of trial; allowed: {', '.join(KINDS)}",
            code="parameter-invalid",
        )
    if len(kinds) == 1:
        return [_COLUMN_OF_KIND[kind].is_not(None) for kind in kinds]
    return [column.is_(None) for kind, column in _COLUMN_OF_KIND.items() if kind not in kinds]


def _check(given: TrialChoice) -> None:
    fingerprint = given.get("fingerprint")
    if fingerprint is not None and not _FINGERPRINT.fullmatch(fingerprint):
        raise UserError(
            f"fingerprint is {fingerprint!r}; allowed: all its 64 digits (0-9, a-f); the start of"
            f" one can be given as workload",
            code="parameter-invalid",
        )
    state = given.get("state")
    if state is not None and state not in _STATES:
        raise UserError(
            f"state is {state!r}; allowed: {', '.join(_STATES)}", code="parameter-invalid"
        )
    percent = given.get("candidate_percent")
    if percent is not None and not 0 <= percent <= 100:
        raise UserError(
            f"candidate_percent is {percent}; allowed: 0 to 100", code="parameter-invalid"
        )
    for name in ("since", "until"):
        moment = given.get(name)
        if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
            raise UserError(
                f"{name} is {str(moment)!r}; allowed: a datetime with a time zone, for example"
                f" datetime(2026, 1, 31, tzinfo=timezone.utc)",
                code="parameter-invalid",
            )
