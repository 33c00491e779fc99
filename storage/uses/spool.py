"""Takes uses that wait in a file into a database; `waiting` writes them.

A line is on the disk before anybody is told of it, and is removed after the database has it. Who is
killed in between leaves both, and the identifier of the use keeps it from being counted twice.
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
    """What became of the lines of a spool file.

    Attributes:
        recorded: Uses that are in the database now.
        known: Uses that were there already.
        kept: Why a line stays in the file, for each that does.
        set_aside: Why one is in another file now, for each that can never be taken in.
    """

    recorded: int = 0
    known: int = 0
    kept: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()


def take_in(
    database: Database, path: Path, *, patience_seconds: float = RESTART_SECONDS
) -> TakenIn:
    """Records the uses of a spool file, and removes from it what the database has.

    A line whose policy the database lacks stays; one that is no use is set aside, in a file beside
    this one. A file without lines is removed. Where there is no file, there is nothing to do.

    Raises:
        UserError: The file cannot be read or written.
        RetryableError: The database is away; what it does not have is still in the file.
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
            why = f"line {number} of {path} is no use ({reason_of(error)}); it is in {aside} now"
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
    """Adds lines to a file that nobody reads but people."""
    with path.open("ab") as file:
        file.writelines(line.rstrip(b"\n") + b"\n" for line in lines)
        to_disk(file, path)


def _parsed(line: bytes) -> PolicyUse:
    """Raises FatalError or ValueError where this is no use that a database could hold."""
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
    _ = use.fingerprint  # which not every job can have
    record = use.record
    for moment in (datetime.fromisoformat(use.created_at), record.started_at, record.ended_at):
        if moment.tzinfo is None:
            raise FatalError(f"{moment} has no time zone")
        moment.astimezone(timezone.utc)
    return use


def _storable(value: Any, name: str = "") -> Any:
    """A value of JSON as a database can hold it. Raises FatalError where it cannot."""
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
