"""Names that have moved to `syncswitch`: where they were they work until 0.3, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from syncswitch.storage.marks import DeprecatedWarning

_DOORS = ("syncswitch", "syncswitch.plugins")


def former_names(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes the `__getattr__` of a module whose names have moved.

    Args:
        package: The module.
        places: By public module, the names that it has now, and by private one those that have no
            public place; one that is called otherwise now is written `former=now`.
    """
    place_of = {}
    for module, names in places.items():
        for name in names.split():
            former, _, now = name.partition("=")
            place_of[former] = module, now or former

    def find(name: str) -> Any:
        if name not in place_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, now = place_of[name]
        instead = f"use {module}.{now}" if module in _DOORS else "it is private now"
        warnings.warn(
            f"{package}.{name} is deprecated since 0.2 and goes in 0.3; {instead}",
            DeprecatedWarning,
            stacklevel=2,
        )
        return getattr(import_module(module), now)

    return find
