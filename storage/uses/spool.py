"""Uses that wait in a file for a database, as JSON lines.

A line is on the disk before anybody is told of it, and is removed after the database has it. A
process that is killed in between leaves both; the identifier of the use keeps it from being counted
twice. To write such a file needs only the standard library: training processes that have nothing
else do so as well.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from syncswitch.storage.database.defaults import RESTART_SECONDS
from syncswitch.storage.errors import FatalError, PolicyError, TooNewError, UserError, reason_of
from syncswitch.storage.files import check_plain_file, sync, whole_file
from syncswitch.storage.formats import KEY, USE
from syncswitch.storage.records.job import first_rule
from syncswitch.storage.records.policy import PolicyUse

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from syncswitch.storage.database.engine import Database

_SUFFIX, _ASIDE = ".uses.jsonl", ".refused.jsonl"
_LOCK_SECONDS = 60.0
_MOST_BYTES = 4 << 30


def spool_beside(path: Path) -> Path:
    """Returns the file in which the uses of a policy file wait: `job.uses.jsonl` for `job.json`."""
    return path.with_name(f"{path.stem}{_SUFFIX}")


def spool_use(path: Path, use: PolicyUse) -> None:
    """Adds a use to a spool file, which is made if need be; afterwards it is on the disk.

    Raises UserError if the file cannot be written; then it is as it was.
    """
    content = {KEY: USE.version, **asdict(use)}
    _rename_metric(content, _IN_RECORDS, _IN_FILES)
    text = json.dumps(content, default=datetime.isoformat, ensure_ascii=False)
    line = text.encode(errors="replace") + b"\n"
    try:
        with _locked(path, os.O_CREAT) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            # Without its end, the writer of the last line was killed.
            try:
                file.write(b"\n" + line if file.read(1) not in (b"", b"\n") else line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), end)  # on a full disk it may be half written
                raise
        sync(path.parent)
    except OSError as error:
        raise UserError(
            f"cannot write the file {path}: {error.strerror or error}; name a file in a directory"
            f" that exists and is writable",
            code="file-unusable",
        ) from error


@contextmanager
def _locked(path: Path, more_flags: int = 0) -> Iterator[IO[bytes]]:
    """Opens the file for reading and appending, and locks it.

    Raises OSError if another process, which may be stopped, holds the lock for too long.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | more_flags
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        with open(os.open(path, flags, 0o666), "r+b") as file:
            is_ours = False
            # Another process has it, or has replaced or removed it before it was locked.
            with suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = os.path.samestat(path.stat(), os.fstat(file.fileno()))
            if is_ours:
                yield file
                return
        if time.monotonic() > deadline:
            raise OSError(errno.EAGAIN, "another process has kept it locked for too long")
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class TakenIn:
    """The result of taking in a spool file."""

    recorded: int = 0  # number of uses that were added to the database
    known: int = 0  # number of uses that were there already
    kept: tuple[str, ...] = ()  # the reason for each line that stays in the file
    # The reason for each line that can never be taken in and is in another file now.
    set_aside: tuple[str, ...] = ()


def take_in(
    database: Database, path: Path, *, patience_seconds: float = RESTART_SECONDS
) -> TakenIn:
    """Records the uses of a spool file, and removes from it those that the database has.

    A line whose policy the database lacks stays, as does one that a newer version has written in a
    way that this one cannot read; one that is not a valid use is set aside in a file
    beside this one. A file whose lines have all been taken in is removed, and a missing file is
    fine. Raises UserError if the file cannot be read or written, or holds no use, so that it is
    somebody else's and stays as it is; RetryableError if the database is away: what it does not
    have is still in the file.
    """
    try:
        check_plain_file(path, _MOST_BYTES)
        with _locked(path) as file:
            lines = file.read().split(b"\n")
            return _take_in(database, path, lines, patience_seconds)
    except (FileNotFoundError, NotADirectoryError):
        return TakenIn()
    except OSError as error:
        raise UserError(
            f"cannot import the runs in {path}: {error.strerror or error}; they stay in it",
            code="file-unusable",
        ) from error


def _take_in(
    database: Database, path: Path, lines: Sequence[bytes], patience_seconds: float
) -> TakenIn:
    from syncswitch.storage.uses.store import record_use

    recorded = known = 0
    uses: dict[int, PolicyUse] = {}
    kept: dict[str, bytes] = {}
    refused: dict[str, bytes] = {}
    aside = path.with_name(f"{path.name.removesuffix(_SUFFIX)}{_ASIDE}")

    def refuse(number: int, error: Exception) -> None:
        why = (
            f"line {number} of {path} is not a valid run ({reason_of(error)}); it is now in {aside}"
        )
        refused[why] = lines[number - 1]

    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                uses[number] = _parsed(line)
            except TooNewError as error:
                kept[f"line {number} of {path} stays there: {error}"] = line
            except _NOT_A_USE as error:
                refuse(number, error)
    if not uses and not refused:
        return TakenIn(kept=tuple(kept))
    if not uses and not kept:
        why = next(iter(refused)).partition("(")[2].partition(");")[0]
        raise UserError(
            f"{path} has no run with a policy ({why}) and is left as it is; give a file that a"
            f" training has left, such as NAME{_SUFFIX}",
            code="file-unusable",
        )
    for number, use in uses.items():
        try:
            is_new = record_use(database, use, patience_seconds=patience_seconds)
            recorded, known = recorded + is_new, known + (not is_new)
        except PolicyError as error:
            kept[f"line {number} of {path} stays there: {error}"] = lines[number - 1]
        except _NOT_A_USE as error:
            refuse(number, error)
    if refused:
        with _locked(aside, os.O_CREAT) as file:
            file.writelines(line + b"\n" for line in refused.values())
        sync(aside)
        sync(aside.parent)
    if kept:
        with whole_file(path) as whole:
            whole.writelines(line + b"\n" for line in kept.values())
    else:
        Path(os.path.realpath(path)).unlink()
    return TakenIn(recorded, known, tuple(kept), tuple(refused))


_NOT_A_USE = (FatalError, ValueError, OverflowError, RecursionError)


def _parsed(line: bytes) -> PolicyUse:
    """Raises FatalError or ValueError if this is not a use that a database could hold.

    TooNewError if a later version of this software has to say so.
    """
    from pydantic import ValidationError

    from syncswitch.storage.policies.schema import first_fault

    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FatalError("it is torn or altered") from error
    if isinstance(content, dict):
        USE.check(content.get(KEY), "it")
    try:
        content = _with_protocols_apart(content)
        _rename_metric(content, _IN_FILES, _IN_RECORDS)
        use = _adapter().validate_python(_storable(content))
    except ValidationError as error:
        raise FatalError(first_fault(error).replace(_IN_RECORDS, _IN_FILES)) from error
    _ = use.fingerprint  # fails for values that JSON cannot hold
    record = use.record
    for moment in (datetime.fromisoformat(use.created_at), record.started_at, record.ended_at):
        if moment.tzinfo is None:
            raise FatalError(f"{moment} has no time zone")
        moment.astimezone(timezone.utc)
    return use


def _with_protocols_apart(content: Any) -> Any:
    """Returns a use as it is written today; older files have the protocols within the job."""
    try:
        spec = content["record"]["spec"]
        identity = spec["identity"]
        if "job" in identity:
            return content
        names = ("first_protocol", "second_protocol", "momentum_after_switch")
        protocols = {name: identity.get(name) for name in names}
        rule = first_rule(protocols["momentum_after_switch"], identity["recipe"]["batch_size"])
        protocols["momentum_after_switch"] = rule
        job = {name: value for name, value in identity.items() if name not in names}
    except (KeyError, TypeError, AttributeError):
        return content  # the check says what is wrong
    spec = {**spec, "identity": {"job": job, "protocols": protocols}}
    return {**content, "record": {**content["record"], "spec": spec}}


_IN_RECORDS, _IN_FILES = "described_metric", "metric"


def _rename_metric(content: Any, old: str, new: str) -> None:
    """Renames the description of the job's metric, which has another name in files; in place."""
    with suppress(KeyError, TypeError, AttributeError):  # the check says what is wrong
        job = content["record"]["spec"]["identity"]["job"]
        job[new] = job.pop(old)


def _storable(value: Any, name: str = "") -> Any:
    """Returns a JSON value as a database can hold it; raises FatalError if it cannot."""
    from syncswitch.storage.policies.schema import largest_integer
    from syncswitch.storage.trials.values import storable_text

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
