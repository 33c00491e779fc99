"""Names, types and limits that all tables share, and the conversion of rows to records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    Double,
    Integer,
    MetaData,
    SQLColumnExpression,
    String,
    Table,
    Text,
    TypeDecorator,
    case,
    insert,
)
from sqlalchemy.types import TypeEngine

from syncswitch.storage.records.flat import columns, nested
from syncswitch.storage.records.trial import TrialState

TABLE_PREFIX = "syncswitch_"

_NAMES = {
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}


def limited(limit: str, *columns: str) -> list[CheckConstraint]:
    """Limits columns, each by a constraint of its name: `limited(">= 0", "seconds")`."""
    return [CheckConstraint(f"{column} {limit}", name=column) for column in columns]


FINITE = "BETWEEN -1e300 AND 1e300"
"""Keeps infinities out of columns whose limits only their job knows."""


def own_value(
    accuracy: SQLColumnExpression[float | None], goal: SQLColumnExpression[str]
) -> ColumnElement[Any]:
    """Computes `Metric.value` in SQL; it also converts a value back to an accuracy."""
    return case((goal == "min", 0.0 - accuracy), else_=accuracy)


METADATA = MetaData(naming_convention=_NAMES)
"""All tables of this project; complete once `indexes` is imported."""


def required(name: str, *arguments: Any, **options: Any) -> Column[Any]:
    """Makes a column that is never null."""
    return Column(name, *arguments, nullable=False, **options)


class UtcDateTime(TypeDecorator[datetime]):
    """A time with its zone in Python, in UTC in the database: SQLite has no time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuses naive times, whose zone nobody could tell later."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a time zone: {value}")
        return value.astimezone(timezone.utc)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=timezone.utc)
        return value.astimezone(timezone.utc)


class StateText(TypeDecorator[TrialState]):
    """The state of a trial, as readable text."""

    impl = String(16)
    cache_ok = True

    def process_bind_param(self, value: TrialState | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> TrialState | None:
        """Returns the state; a database with any other text is damaged."""
        return None if value is None else TrialState(value)


# Texts that are not in here may be of any length.
_LENGTHS = {
    "first_protocol": 64,
    "kind": 32,
    "metric_goal": 8,
    "metric_unit": 64,
    "momentum_after_switch": 64,
    "name": 255,
    "protocol": 64,
    "second_protocol": 64,
    "simulated_cluster": 64,
    "strategy": 64,
    "study": 512,
    "trainer": 64,
    "workload": 255,
}
_LONG = re.compile("worker_step|seed")
_TYPES: dict[type, type[TypeEngine[Any]]] = {
    bool: Boolean,
    int: Integer,
    float: Double,
    TrialState: StateText,
    datetime: UtcDateTime,
}


def stored(record: type, **others: Column[Any] | TypeEngine[Any] | None) -> Iterator[Column[Any]]:
    """Makes a column for each one of a record; it may be null if the value may be None.

    `others` has columns or types where which the usual one is not right, and None for those
    that are stored elsewhere.
    """
    for one in columns(record):
        name, kind, nullable = one.name, one.kind, one.nullable
        known: Any = _TYPES.get(kind, JSON(none_as_null=nullable))
        if kind is str:
            known = String(_LENGTHS[name]) if name in _LENGTHS else Text()
        elif kind is int and _LONG.search(name):
            known = BigInteger
        column = others.get(name, known)
        if isinstance(column, Column):
            yield column
        elif column is not None:
            yield Column(name, column, nullable=nullable)


_Record = TypeVar("_Record")


def columns_of(record: type, table: Table) -> list[Column[Any]]:
    """Returns the columns of a table that are named like those of a record."""
    return [table.c[one.name] for one in columns(record)]


def record_of(record: type[_Record], source: object, **others: Any) -> _Record:
    """Makes a record from what a row, or another object, has under the names of its columns."""
    names = [one.name for one in columns(record) if one.name not in others]
    return nested(record, {**{name: getattr(source, name) for name in names}, **others})


def add_rows(
    connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]], **same: Any
) -> None:
    """Adds rows, perhaps none, with some values that are the same in all of them."""
    values = [{**row, **same} for row in rows]
    if values:
        connection.execute(insert(table), values)
