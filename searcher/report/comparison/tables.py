"""In what several reports differ, fact by fact; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from syncswitch.searcher.report.comparison.sides import Side
from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.tables.evidence import identity_table, policy_table
from syncswitch.searcher.report.tables.table import Table
from syncswitch.searcher.text.sentences import times_text
from syncswitch.searcher.text.values import NONE, accuracy_text, seconds_text

_LEFT_OUT = {"created", "imported", "database", "read at"}
_DIGEST_LETTERS = 64
_SHOWN_LETTERS = 12


def difference_table(sides: Sequence[Side]) -> Table:
    """The facts in which they differ: what came out, what the policies say, what the jobs are."""
    facts = [_facts(side.data) for side in sides]
    names = dict.fromkeys(name for known in facts for name in known)
    rows = ((name, *(known.get(name, NONE) for known in facts)) for name in names)
    differing = tuple(row for row in rows if len(set(row[1:])) > 1)
    return Table("Differences", ("", *(side.letter for side in sides)), differing)


def equal_facts(sides: Sequence[Side]) -> list[str]:
    """The names of those in which they do not."""
    facts = [_facts(side.data) for side in sides]
    return [name for name in facts[0] if all(known.get(name) == facts[0][name] for known in facts)]


def _facts(data: ReportData) -> dict[str, str]:
    tables = (policy_table(data), identity_table(data))
    told = {row[0]: row[1] for table in tables for row in table.rows}
    known = {name: _short(value) for name, value in told.items() if name not in _LEFT_OUT}
    return {**_found(data), **known}


def _short(value: str) -> str:
    is_digest = len(value) == _DIGEST_LETTERS and value.isalnum()
    return value[:_SHOWN_LETTERS] if is_digest else value


def _found(data: ReportData) -> dict[str, str]:
    """What came out."""
    answer, cost, paid_back = data.answer, data.cost, data.recurrences_to_pay_back
    mean, metric = None if answer is None else answer.mean_accuracy, data.identity.decided_by
    return {
        f"{metric.name} with the policy": accuracy_text(mean, metric),
        "times as fast as without (90 %)": times_text(data.measured_speed_up),
        "a training with the policy, s": seconds_text(data.policy_seconds),
        "a training without, s": seconds_text(data.baseline_seconds),
        "the search trained for, s": seconds_text(None if cost is None else cost.paid_seconds),
        "runs of the search": NONE if cost is None else str(cost.completed_runs),
        "trainings until it has paid off": (
            NONE
            if paid_back is None
            else "never"
            if math.isinf(paid_back)
            else f"{math.ceil(paid_back):,}"
        ),
    }
