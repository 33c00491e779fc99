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
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


def facts_table(title: str, facts: Iterable[tuple[str, object]]) -> Table:
    """A row for each fact that is known."""
    rows = tuple((name, str(value)) for name, value in facts if value is not None)
    return Table(title, (), rows)


def table_of(title: str, items: Sequence[_T], columns: Mapping[str, Callable[[_T], str]]) -> Table:
    """A row for each item, at most the last 1,000; `columns` say how each of its cells reads."""
    rows = tuple(tuple(cell(item) for cell in columns.values()) for item in items[-_MOST_ROWS:])
    return Table(title, tuple(columns), rows, len(items) - len(rows))
