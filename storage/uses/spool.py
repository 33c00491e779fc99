"""Moves uses that wait in a file into a database; `waiting` writes such files.

A line is on the disk before anybody is told of it, and is removed after the database has it. A
process that is killed in between leaves both; the identifier of the use keeps it from being counted
twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncswitch.storage.database.engine import RESTART_SECONDS, Database
from syncswitch.storage.errors import FatalError, PolicyError, UserError, reason_of
from syncswitch.storage.files import check_plain_file, whole_file
from syncswitch.storage.records.use import PolicyUse
from syncswitch.storage.trials.rows import storable_text
from syncswitch.storage.uses.store import record_use
from syncswitch.storage.uses.waiting import SUFFIX, locked, to_disk

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_ASIDE = ".refused.jsonl"

_MOST_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class TakenIn:
    """The result of taking in a spool file.

    Attributes:
        recorded: Number of uses that were added to the database.
        known: Number of uses that were there already.
        kept: The reason for each line that stays in the file.
        set_aside: The reason for each line that can never be taken in and is in another file now.
    """

    recorded: int = 0
    known: int = 0
    kept: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()


def take_in(
    database: Database, path: Path, *, patience_seconds: float = RESTART_SECONDS
) -> TakenIn:
    """Records the uses of a spool file, and removes from it those that the database has.

    A line whose policy the database lacks stays; one that is not a valid use is set aside in a file
    beside this one. A file without lines is removed, and a missing file is fine. Raises UserError
    if the file cannot be read or written, RetryableError if the database is away: what it does not
    have is still in the file.
    """
    try:
        check_plain_file(path, _MOST_BYTES)
        with locked(path, create=False) as file:
            lines = file.read().splitlines(keepends=True)
            return _take_in(database, path, lines, patience_seconds)
    except (FileNotFoundError, NotADirectoryError):
        return TakenIn()
    except OSError as error:
        raise UserError(
            f"cannot take in the uses of {path}: {error.strerror or error}; they stay in it"
        ) from error


def _take_in(
    database: Database, path: Path, lines: Sequence[bytes], patience_seconds: float
) -> TakenIn:
    recorded = known = 0
    kept: list[tuple[bytes, str]] = []
    refused: list[tuple[bytes, str]] = []
    aside = path.with_name(f"{path.name.removesuffix(SUFFIX)}{_ASIDE}")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if record_use(database, _parsed(line), patience_seconds=patience_seconds):
                recorded += 1
            else:
                known += 1
        except PolicyError as error:
            kept.append((line, f"line {number} of {path} stays there: {error}"))
        except (FatalError, ValueError, OverflowError, RecursionError) as error:
            why = f"line {number} of {path} is not a use ({reason_of(error)}); it is in {aside} now"
            refused.append((line, why))
    if refused:
        _set_aside(aside, [line for line, _ in refused])
    if kept:
        with whole_file(path) as whole:
            whole.writelines(line for line, _ in kept)
    else:
        path.unlink()
    return TakenIn(recorded, known, tuple(why for _, why in kept), tuple(why for _, why in refused))


def _set_aside(path: Path, lines: Sequence[bytes]) -> None:
    """Adds lines to a file that only people read."""
    with path.open("ab") as file:
        file.writelines(line.rstrip(b"\n") + b"\n" for line in lines)
        to_disk(file, path)


def _parsed(line: bytes) -> PolicyUse:
    """Raises FatalError or ValueError if this is not a use that a database could hold."""
    from pydantic import ValidationError

    from syncswitch.storage.policies.schema import first_fault

    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FatalError("it is torn or altered") from error
    try:
        use = _adapter().validate_python(_storable(content))
    except ValidationError as error:
        raise FatalError(first_fault(error)) from error
    _ = use.fingerprint  # fails for values that JSON cannot hold
    record = use.record
    for moment in (datetime.fromisoformat(use.created_at), record.started_at, record.ended_at):
        if moment.tzinfo is None:
            raise FatalError(f"{moment} has no time zone")
        moment.astimezone(timezone.utc)
    return use


def _storable(value: Any, name: str = "") -> Any:
    """Returns a JSON value as a database can hold it; raises FatalError if it cannot."""
    from syncswitch.storage.policies.schema import largest_integer

    if isinstance(value, dict):
        return {storable_text(key): _storable(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_storable(one, name) for one in value]
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, int) and abs(value) > largest_integer(name):
        raise FatalError(f"{name} is {str(value)[:40]}, at most {largest_integer(name)}")
    return value


@cache
def _adapter() -> TypeAdapter[PolicyUse]:
    from pydantic import TypeAdapter

    return TypeAdapter(PolicyUse)
