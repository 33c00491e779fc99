"""The versions of what is written for later: files, lines and states that other processes read.

Within a version a field may be added that a reader may pass over; any other change raises the
version, and readers convert the former ones. `docs/formats.md` says so to users.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.storage.errors import TooNewError

KEY = "schema_version"
"""The field in which the version stands."""


@dataclass(frozen=True)
class Format:
    """One format, and the version that this software writes; it reads that and all before."""

    version: int

    def check(self, stated: object, what: str) -> int:
        """Returns the version that is stated; what states none is of the first.

        Raises TooNewError for a later one than is known, ValueError if it is no version.
        """
        if stated is None:
            return 1
        if type(stated) is not int or stated < 1:  # JSON's true equals 1
            raise ValueError(f"{KEY} is {stated!r}")
        if stated > self.version:
            raise TooNewError(
                f"{what} was written by a newer syncswitch: its schema version is {stated}",
                allowed=f"1 to {self.version}" if self.version > 1 else "1",
                remedy="update syncswitch",
            )
        return stated


POLICY = Format(2)
USE = Format(1)
PLAN = Format(1)
LOOP_EVENT = Format(1)
LOOP_STATE = Format(1)
CHECKPOINT = Format(1)
