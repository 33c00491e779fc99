"""Names that a package offers, imported when they are first used.

So `from syncswitch.storage import TimingPolicy` works, and yet nobody who only asks for help waits
for SQLAlchemy, Optuna or TensorFlow.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package; `places` is the module in it that has each name."""

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{places[name]}"), name)

    return find
