"""Engines that know each other's SQL.

An engine writes each statement as SQL once and keeps that. A program has one engine for its whole
life; the tests have thousands, and half of the time of a test of the store went into the same SQL.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache


def share_sql() -> None:
    """Has all engines of this process whose dialects are alike keep their SQL in one place."""
    event.listen(Engine, "engine_connect", _use_shared)
    # They are part of the keys; those of another kind, or with other options, stay different.
    DefaultDialect.__hash__ = lambda self: hash(_kind(self))  # type: ignore[method-assign]
    DefaultDialect.__eq__ = _are_alike  # type: ignore[method-assign]


_shared: defaultdict[tuple[object, ...], Any] = defaultdict(lambda: LRUCache(10_000))


def _use_shared(connection: Any) -> None:
    connection.engine._compiled_cache = _shared[_kind(connection.dialect)]


def _are_alike(one: Any, other: object) -> bool:
    return isinstance(other, DefaultDialect) and _kind(one) == _kind(other)


def _kind(dialect: Any) -> tuple[object, ...]:
    options = ("paramstyle", "_json_serializer", "_json_deserializer")
    return (type(dialect), *(getattr(dialect, name, None) for name in options))
