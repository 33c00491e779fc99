"""Writes uses to a file in which they wait for a database, as JSON lines.

It needs only the standard library: training processes that have nothing else also write uses.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import IO

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.use import PolicyUse

SUFFIX = ".uses.jsonl"

_LOCK_SECONDS = 60.0


def spool_beside(path: Path) -> Path:
    """Returns the file in which the uses of a policy file wait: `job.uses.jsonl` for `job.json`."""
    return path.with_name(f"{path.stem}{SUFFIX}")


def spool_use(path: Path, use: PolicyUse) -> None:
    """Adds a use to a spool file, which is made if need be; afterwards it is on the disk.

    Raises UserError if the file cannot be written.
    """
    text = json.dumps(asdict(use), default=datetime.isoformat, ensure_ascii=False)
    line = text.encode(errors="replace") + b"\n"
    try:
        with locked(path, create=True) as file:
            torn = _ends_amid_a_line(file)  # its writer was killed
            file.write(b"\n" + line if torn else line)
            to_disk(file, path)
    except OSError as error:
        raise UserError(
            f"cannot write the file {path}: {error.strerror or error}; name a file in a directory"
            f" that exists and is writable"
        ) from error


@contextmanager
def locked(path: Path, *, create: bool) -> Iterator[IO[bytes]]:
    """Opens the file for reading and appending, and locks it.

    Raises OSError if another process, which may be stopped, holds the lock for too long.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | (os.O_CREAT if create else 0)
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        with open(os.open(path, flags, 0o666), "r+b") as file:
            # Another process may have replaced or removed it before it was locked.
            if _is_locked(file) and _is_at(path, file):
                yield file
                return
        if time.monotonic() > deadline:
            raise OSError(errno.EAGAIN, "another process has kept it locked for too long")
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


def to_disk(file: IO[bytes], path: Path) -> None:
    """Writes the content, and the name of the file in its folder, to the disk."""
    file.flush()
    os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
