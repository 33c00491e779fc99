"""Imports the names that a package offers when they are first used.

So `from syncswitch.storage import TimingPolicy` works, and yet `--help` does not wait for
SQLAlchemy, Optuna or TensorFlow.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes the `__getattr__` of a package, given the names in each of its modules.

    Type checkers need the same imports under `if TYPE_CHECKING:`.
    """
    module_of = {name: module for module, names in places.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)

    return find
