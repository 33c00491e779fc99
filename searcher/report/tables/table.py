"""A table of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

_MOST_ROWS = 1000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as people read them.

    Attributes:
        columns: Their names; none where the first cell of each row is its name.
        left_out: Rows before the first one that is shown.
        trial_ids: The run that each row is about, where it is about one; empty for none.
        lists_runs: The rows are the runs themselves, to which others lead.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0
    trial_ids: tuple[int | None, ...] = ()
    lists_runs: bool = False


def facts_table(title: str, facts: Iterable[tuple[str, object]]) -> Table:
    """A row for each fact that is known."""
    rows = tuple((name, str(value)) for name, value in facts if value is not None)
    return Table(title, (), rows)


def table_of(
    title: str,
    items: Sequence[_T],
    columns: Mapping[str, Callable[[_T], str]],
    trial_id: Callable[[_T], int | None] = lambda _: None,
) -> Table:
    """A row for each item, at most the last 1,000.

    Args:
        title: What it is a table of.
        items: What the rows are about.
        columns: How each cell of a row reads.
        trial_id: The run that a row is about.
    """
    shown = items[-_MOST_ROWS:]
    rows = tuple(tuple(cell(item) for cell in columns.values()) for item in shown)
    left_out = len(items) - len(rows)
    return Table(title, tuple(columns), rows, left_out, tuple(map(trial_id, shown)))
