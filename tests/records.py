"""Records with other values, by the names of their columns."""

from __future__ import annotations

from typing import Any, TypeVar

from syncswitch.storage.records.flat import columns, nested, values_of

_Record = TypeVar("_Record")


def changed(record: _Record, **values: Any) -> _Record:
    """The record with these values in its columns, those of its parts among them."""
    names = [one.name for one in columns(type(record))]
    assert values.keys() <= {*names}
    return nested(type(record), {**dict(zip(names, values_of(record), strict=True)), **values})
