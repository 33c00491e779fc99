"""A table of a report, and how its cells are written; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.report.data import ReportRun
from syncswitch.searcher.text.sentences import conditions_text
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.trials.events import condition_values

NONE = "-"
"""In the cell of what is not known."""

_MOST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as people read them.

    Attributes:
        title: What it is.
        columns: Their names; none where the first cell of each row is its name.
        rows: A cell for each column.
        left_out: Rows before the first one that is shown.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


def table_of(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of at most 1,000 rows, the last ones."""
    shown = tuple(tuple(row) for row in rows[-_MOST_ROWS:])
    return Table(title, tuple(columns), shown, len(rows) - len(shown))


def run_name(run: ReportRun) -> str:
    """With the search that it belongs to."""
    return run.name if run.trial.study is None else f"{run.trial.study} {run.name}"


def conditions_words(conditions: RunConditions) -> str:
    """What of them is not the default; `-` for nothing."""
    values = condition_values(conditions)
    online, mechanism = values["online"] or "none", values["switch_mechanism"] or "hot"
    return conditions_text(online, mechanism, values["injections"]) or NONE


def percent_text(percent: float) -> str:
    """A switch point, for example `12.5 %`."""
    return f"{percent:.6g} %"


def accuracy_text(accuracy: float | None) -> str:
    """For example `0.9832`."""
    return value_text(accuracy, ".4f")


def seconds_text(seconds: float | None) -> str:
    """For example `1,234.5`."""
    return value_text(seconds, ",.1f")


def value_text(value: float | None, form: str) -> str:
    """A number in a format; `-` where there is none."""
    return NONE if value is None else format(value, form)
