"""Uses that wait in a file for a database: JSON lines, one for each use.

A line is on the disk before anybody is told of it, and is removed after the database has it. Who is
killed in between leaves both, and the identifier of the use keeps it from being counted twice.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from syncswitch.storage.database.engine import RESTART_SECONDS, Database
from syncswitch.storage.errors import FatalError, PolicyError, UserError, reason_of
from syncswitch.storage.files import check_plain_file, whole_file
from syncswitch.storage.records.use import PolicyUse
from syncswitch.storage.trials.events import storable_text
from syncswitch.storage.uses.store import record_use

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SUFFIX = ".uses.jsonl"
_ASIDE = ".refused.jsonl"

_MOST_BYTES = 4 << 30
_LOCK_SECONDS = 60.0


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


def spool_beside(path: Path) -> Path:
    """Where the uses of a policy file wait: `job.json` has `job.uses.jsonl`."""
    return path.with_name(f"{path.stem}{SUFFIX}")


def spool_use(path: Path, use: PolicyUse) -> None:
    """Adds a use to a spool file, which is made if need be. It is on the disk then.

    Raises UserError where the file cannot be written.
    """
    text = json.dumps(asdict(use), default=datetime.isoformat, ensure_ascii=False)
    line = text.encode(errors="replace") + b"\n"
    try:
        with _locked(path, create=True) as file:
            torn = _ends_amid_a_line(file)  # of somebody who was killed
            file.write(b"\n" + line if torn else line)
            _to_disk(file, path)
    except OSError as error:
        raise UserError(
            f"cannot write the file {path}: {error.strerror or error}; name a file in a directory"
            f" that exists and is writable"
        ) from error


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
        with _locked(path, create=False) as file:
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
        _to_disk(file, path)


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


@contextmanager
def _locked(path: Path, *, create: bool) -> Iterator[IO[bytes]]:
    """The file, open to be read and added to, and nobody else's meanwhile.

    Raises OSError where it is somebody else's for too long: it may have been stopped.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | (os.O_CREAT if create else 0)
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        with open(os.open(path, flags, 0o666), "r+b") as file:
            # Another one may have replaced or removed it before it was ours.
            if _is_locked(file) and _is_at(path, file):
                yield file
                return
        if time.monotonic() > deadline:
            raise OSError(errno.EAGAIN, "another process has been at work on it for too long")
        time.sleep(0.02)


def _is_locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _ends_amid_a_line(file: IO[bytes]) -> bool:
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return False
    file.seek(end - 1)
    return file.read(1) != b"\n"


def _to_disk(file: IO[bytes], path: Path) -> None:
    """The line, and the file's name in its folder."""
    file.flush()
    os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
