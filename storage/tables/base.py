"""What all tables have in common."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ColumnElement,
    Double,
    MetaData,
    SQLColumnExpression,
    case,
)
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute

from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.column_types import StateText, UtcDateTime

TABLE_PREFIX = "syncswitch_"

_NAMES = {
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}


def finite(column: str) -> CheckConstraint:
    """Keeps what is no number out of a column whose limits its job alone knows."""
    return CheckConstraint(f"{column} BETWEEN -1e300 AND 1e300", name=column)


def own_value(
    accuracy: SQLColumnExpression[float | None], goal: SQLColumnExpression[str]
) -> ColumnElement[Any]:
    """What `Metric.value` says, in SQL; and of a value its accuracy."""
    return case((goal == "min", 0.0 - accuracy), else_=accuracy)


class Base(DeclarativeBase):
    """Holds the metadata of all tables of this project."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {  # noqa: RUF012
        float: Double(),
        datetime: UtcDateTime(),
        dict[str, str]: JSON(),
        TrialState: StateText(),
    }


_Record = TypeVar("_Record")


def columns_of(record: type, table: type[Base]) -> list[InstrumentedAttribute[Any]]:
    """The columns of a table that have the names of a dataclass's fields, in their order."""
    return [getattr(table, field.name) for field in fields(record)]


def record_of(record: type[_Record], row: Base, **others: Any) -> _Record:
    """A dataclass of what a row has under the names of its fields; others are given."""
    names = [field.name for field in fields(record) if field.name not in others]  # type: ignore[arg-type]
    return record(**{name: getattr(row, name) for name in names}, **others)
