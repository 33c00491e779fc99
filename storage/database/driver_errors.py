"""Translates errors of database drivers; the class of the result says what to do next."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError

from syncswitch.storage.errors import (
    DatabaseAwayError,
    DatabaseError,
    FatalError,
    RetryableError,
    SyncSwitchError,
)

# SQLSTATEs of transactions that met (another try helps), a duplicate row, and a full disk.
_MEETING = frozenset({"40001", "40P01"})
_UNIQUE = "23505"
_DISK_FULL = "53100"


class CollisionError(RetryableError):
    """A row with this key exists: another writer added it just now, or long ago."""


def translated(error: DBAPIError, place: str) -> SyncSwitchError:
    """Returns our error for one of a driver; `place` names the database in messages."""
    why = reason(error)
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    is_server = not isinstance(error.orig, sqlite3.Error)
    is_lost = error.connection_invalidated or (is_server and isinstance(error, OperationalError))
    if state == _UNIQUE:
        return CollisionError(f"the database {place} refuses these values: {why}")
    if (is_lost and state != _DISK_FULL) or state in _MEETING or "is locked" in why:
        return DatabaseAwayError(f"the database {place} is busy or was lost: {why}")
    if isinstance(error, (IntegrityError, DataError)):
        return FatalError(f"the database {place} refuses these values: {why}")
    return DatabaseError(
        f"the database {place} cannot be used: {why}; check its permissions, free space and"
        f" server, or name another with --storage URL"
    )


def is_away(error: BaseException | None) -> bool:
    """Returns whether an error from another library means that the database may come back."""
    return isinstance(error, DBAPIError) and isinstance(translated(error, ""), DatabaseAwayError)


def reason(error: DBAPIError) -> str:
    """Returns the message of the driver in one line."""
    return " ".join(str(error.orig).split())
