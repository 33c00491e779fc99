"""Classes that other packages register under a group of entry points."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import TypeVar

from syncswitch.storage.errors import UserError, one_line

_Kind = TypeVar("_Kind")


@cache
def _in_group(group: str) -> EntryPoints:
    """To look through all that is installed takes 10 ms."""
    return entry_points(group=group)


def registered(
    group: str, base: type[_Kind], name: str | None = None
) -> Iterator[type[_Kind] | UserError]:
    """Yields the subclasses of `base` in a group, and an error for each that cannot be used.

    With a `name` only those of this name.
    """
    noun = group.rpartition(".")[2].removesuffix("s")
    for entry in _in_group(group):
        if name not in (None, entry.name):
            continue
        try:
            kind = entry.load()
        except Exception as error:  # foreign code
            yield UserError(
                f"{noun} {entry.name!r}: loading {entry.value} failed with {one_line(error)}; "
                "mend or uninstall the package that registers it"
            )
            continue
        if isinstance(kind, type) and issubclass(kind, base):
            yield kind
        else:
            wanted = f"{base.__module__}.{base.__qualname__}"
            yield UserError(f"{noun} {entry.name!r}: {entry.value} is not a subclass of {wanted}")
