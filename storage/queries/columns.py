"""The columns of the tables that we hand out: name, type and meaning, each written once.

The table of trials is described by `TRIAL_FACTS`, every other one by a record whose fields are
annotated with their meaning: `runs: Annotated[int, "completed runs"]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from sqlalchemy import JSON, Table, TypeDecorator
from sqlalchemy.types import TypeEngine

# Of a column without missing values, and of one with them. A measurement that is missing is NaN.
# JSON is text in a frame, so that it can be grouped, compared and saved.
_DTYPES = {
    bool: ("bool", "boolean"),
    int: ("int64", "Int64"),
    float: ("float64", "float64"),
    str: ("string", "string"),
    dict: ("string", "string"),
    datetime: ("datetime64[us, UTC]", "datetime64[us, UTC]"),
}


@dataclass(frozen=True)
class JobColumns:
    """A job, in the tables that have rows for each."""

    workload: Annotated[str, "name of the workload"]
    fingerprint: Annotated[str, "of the workload on its cluster"]
    workers: Annotated[int, "n, size of the cluster"]
    simulated_cluster: Annotated[str | None, "digest of its profile; null for a real one"]
    first_protocol: Annotated[str, "before the switch"]
    second_protocol: Annotated[str, "after the switch"]


@dataclass(frozen=True)
class MeasuredJobColumns(JobColumns):
    """A job, in the tables that say how good its runs were.

    Beside each accuracy, of which more is always better, they have the metric's own value.
    """

    metric: Annotated[str, "name of what its runs are compared by"]
    metric_goal: Annotated[
        str, "max where more of the metric is better; where min, every accuracy is its negative"
    ]
    metric_unit: Annotated[str | None, "of the metric's values; null for none"]


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """One column; its name has the unit, and its kind is the type of its values in Python."""

    name: str
    kind: type
    nullable: bool
    meaning: str

    @property
    def dtype(self) -> str:
        """Its type in pandas, whatever the rows are."""
        return _DTYPES[self.kind][self.nullable]


def columns_of_table(table: Table) -> tuple[FrameColumn, ...]:
    """The columns of a table or view; its comments are the meanings."""
    return tuple(
        FrameColumn(column.name, _kind(column.type), bool(column.nullable), column.comment or "")
        for column in table.columns
    )


def columns_of_record(record: type) -> tuple[FrameColumn, ...]:
    """The columns that the annotated fields of a record describe."""
    hints = get_type_hints(record, include_extras=True)
    return tuple(_column(name, get_args(hint)) for name, hint in hints.items())


def _kind(kind: TypeEngine[Any]) -> type:
    plain = kind.impl_instance if isinstance(kind, TypeDecorator) else kind
    return dict if isinstance(plain, JSON) else plain.python_type


def _column(name: str, annotated: Sequence[Any]) -> FrameColumn:
    hint, meaning = annotated
    kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    (kind,) = (kind for kind in kinds if kind is not NoneType)
    return FrameColumn(name, get_origin(kind) or kind, NoneType in kinds, meaning)
