"""Imports the names that a module offers when they are first used.

So `from syncswitch import search` works, and yet `import syncswitch` does not wait for SQLAlchemy,
Optuna or TensorFlow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

_INSTALLS = {
    "keras": ("TensorFlow", "tensorflow"),
    "tensorflow": ("TensorFlow", "tensorflow"),
    "torch": ("PyTorch", "torch"),
    "lightning": ("Lightning", "'syncswitch[lightning]'"),
    "transformers": ("Transformers", "'syncswitch[transformers]'"),
}
"""By the library that may be missing, its name and what pip installs."""


def lazy_names(
    package: str,
    public: Sequence[str],
    places: Mapping[str, str],
    needs: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the `__getattr__` and the `__dir__` of a module.

    Type checkers need the same imports under `if TYPE_CHECKING:`.

    Args:
        package: The module, which has no `__all__` of its own afterwards.
        public: All its names.
        places: By module, without the `syncswitch.` in front, the names that it has. No module
            for a submodule itself.
        needs: By library that an installation may lack, the names that need it. `dir`, `help` and
            `import *` leave them out where it is missing.
    """
    module_of = {name: module for module, names in places.items() for name in names.split()}

    def absent() -> set[str]:
        from importlib.util import find_spec

        missing = (names for library, names in (needs or {}).items() if find_spec(library) is None)
        return {name for names in missing for name in names.split()}

    def find(name: str) -> Any:
        if name == "__all__":
            return [one for one in public if one not in absent()]
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = module_of[name]
        if not module:
            return import_module(f"{package}.{name}")
        try:
            found = import_module(f"syncswitch.{module}")
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in _INSTALLS:
                raise
            title, install = _INSTALLS[missing]
            raise ImportError(
                f"{package}.{name} needs {title}, which is missing; run: pip install {install}",
                name=missing,
            ) from error
        return getattr(found, name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of} - absent())

    return find, names
