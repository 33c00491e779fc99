"""The options of trainers, described once for the command line and for Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncswitch.storage.errors import UserError

USUAL_WORKERS = 4
USUAL_PROTOCOLS = "bsp,asp"
"""Default protocols of a cluster."""


@dataclass(frozen=True)
class TrainerOption:
    """An option that only some kinds of trainers have."""

    flag: str  # on the command line, such as `--launcher`
    help: str
    type: type = str  # str, int, float, bool or Path
    name: str = ""  # of the parameter; empty for the flag with underscores
    metavar: str = ""  # placeholder of the value in the help; empty for that of the type
    default: Any = None  # None if it depends on other things
    choices: tuple[str, ...] = ()  # allowed values; empty for any
    least: float | None = None  # smallest allowed number
    most: float | None = None  # largest allowed number

    @property
    def parameter(self) -> str:
        """Name of the parameter of a Python function."""
        return self.name or self.flag.removeprefix("--").replace("-", "_")

    def checked(self, value: Any) -> Any:
        """Converts a value from Python to the option's type."""
        if value is None:
            return None
        why = self._why_not(value)
        if why:
            raise UserError(f"{self.flag} is {value!r}: {why}")
        return self.type(value)

    def _why_not(self, value: Any) -> str:
        if self.choices and value not in self.choices:
            return f"give one of {', '.join(self.choices)}"
        if self.type is bool:
            return "" if isinstance(value, bool) else "give True or False"
        if self.type in (int, float):
            return self._why_no_number(value)
        return "" if isinstance(value, (str, Path)) else "give a text"

    def _why_no_number(self, value: Any) -> str:
        kind = "a whole number" if self.type is int else "a number"
        try:
            number = float(value)
        except (TypeError, ValueError):
            return f"give {kind}"
        if isinstance(value, bool) or (self.type is int and not number.is_integer()):
            return f"give {kind}"
        if math.isnan(number):
            return "give a number"
        if self.least is not None and number < self.least:
            return f"give {self.least:g} or more"
        if self.most is not None and number > self.most:
            return f"give {self.most:g} or less"
        return ""
