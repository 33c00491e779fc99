"""Imports the names that a package offers when they are first used.

So `from syncswitch.storage import TimingPolicy` works, and yet `--help` does not wait for
SQLAlchemy, Optuna or TensorFlow.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> Callable[[str], Any]:
    """Makes the `__getattr__` of a package by its `__name__` and `__file__`.

    The imports in that file under `if TYPE_CHECKING:` say where each name is.
    """

    def find(name: str) -> Any:
        for node in ast.walk(ast.parse(Path(file).read_text())):
            if isinstance(node, ast.ImportFrom) and name in {one.name for one in node.names}:
                return getattr(importlib.import_module(str(node.module)), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
