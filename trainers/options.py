"""The options of a trainer, described once for command lines and Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncswitch.storage.errors import UserError

USUAL_WORKERS = 4
USUAL_PROTOCOLS = "bsp,asp"
"""Protocols of a cluster where nobody names any."""


@dataclass(frozen=True)
class TrainerOption:
    """An option that goes with some kinds of trainers alone.

    Attributes:
        flag: Its name on a command line, such as `--launcher`.
        help: Its help, for people.
        type: str, int, float, bool or Path.
        name: The parameter that takes it; empty for the flag with underscores.
        metavar: The value, in the help; empty for what follows from the type.
        default: The value where nobody says; None where that depends.
        choices: The only values that it takes; empty for any.
        least: The least number that it takes.
        most: The largest number that it takes.
    """

    flag: str
    help: str
    type: type = str
    name: str = ""
    metavar: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None

    @property
    def parameter(self) -> str:
        """The parameter of a function that takes the value."""
        return self.name or self.flag.removeprefix("--").replace("-", "_")

    def checked(self, value: Any) -> Any:
        """Return a value from Python as it would be from a command line.

        Raises:
            UserError: The option does not take it.
        """
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
