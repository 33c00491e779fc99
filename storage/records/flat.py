"""Values that nest, as columns side by side, and back: for tables, files, frames and JSON.

A field whose type is a dataclass stands for the columns of that record. The column of any other
field has its name, unless the record's `COLUMNS` has another one. So each column is described once,
by an annotation: `runs: Annotated[int, "completed runs", Limits(least=1)]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from syncswitch.storage.records.limits import Limits

_Record = TypeVar("_Record")


class Column(NamedTuple):
    """A column of a record: its name, the type of its values, and what is stated of them."""

    name: str
    hint: Any
    meaning: str | None
    limits: Limits

    @property
    def kind(self) -> type:
        """The type of its values in Python, but for missing ones."""
        kinds = get_args(self.hint) if self.nullable else (self.hint,)
        (kind,) = (kind for kind in kinds if kind is not NoneType)
        found: type = get_origin(kind) or kind
        return found

    @property
    def nullable(self) -> bool:
        """Whether a value may be missing."""
        return get_origin(self.hint) is UnionType and NoneType in get_args(self.hint)


class _Field(NamedTuple):
    name: str
    part: type | None
    column: Column


@cache
def _fields(record: type) -> tuple[_Field, ...]:
    hints = get_type_hints(record, include_extras=True)
    renamed: Mapping[str, str] = getattr(record, "COLUMNS", {})
    found = []
    for name in [one.name for one in fields(record)] if is_dataclass(record) else hints:
        hint: Any = hints[name]
        stated: list[Any] = []
        if get_origin(hint) is Annotated:
            hint, *stated = get_args(hint)
        meaning = next((one for one in stated if isinstance(one, str)), None)
        limits = next((one for one in stated if isinstance(one, Limits)), Limits())
        part = hint if isinstance(hint, type) and is_dataclass(hint) else None
        found.append(_Field(name, part, Column(renamed.get(name, name), hint, meaning, limits)))
    return tuple(found)


def columns(record: type) -> Iterator[Column]:
    """Yields the columns of a record, those of its parts where these stand."""
    for one in _fields(record):
        if one.part is None:
            yield one.column
        else:
            yield from columns(one.part)


def values_of(value: Any) -> Iterator[Any]:
    """Yields what the columns of a record hold."""
    record: type = type(value)
    for one in _fields(record):
        own = getattr(value, one.name)
        if one.part is None:
            yield own
        else:
            yield from values_of(own)


def flat(value: Any) -> dict[str, Any]:
    """Returns what the columns of a record hold by name; records in them become dictionaries."""
    return dict(_spliced(type(value), asdict(value)))


def _spliced(record: type, content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for one in _fields(record):
        if one.part is None:
            yield one.column.name, content[one.name]
        else:
            yield from _spliced(one.part, content[one.name])


def nested(record: Callable[..., _Record], values: Mapping[str, Any]) -> _Record:
    """Makes a record of what its columns hold, among others; what is missing has its default."""
    content: dict[str, Any] = {}
    for one in _fields(record):
        if one.part is not None:
            content[one.name] = nested(one.part, values)
        elif one.column.name in values:
            content[one.name] = values[one.column.name]
    return record(**content)
