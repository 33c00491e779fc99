"""Files that appear whole or not at all, those of somebody else, and folders that go with a run."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from syncswitch.storage.errors import UserError


@contextmanager
def whole_file(path: Path, replaces: tuple[bytes, ...] = ()) -> Iterator[BinaryIO]:
    """A new file to write; whoever reads the path sees the old file or the new one, whole.

    After an error there is the old file, or none. Of a symbolic link it is what that points at. A
    file that begins otherwise than `replaces` is not lost for it. Raises UserError where the file
    cannot be written.
    """
    try:
        target = _target(path)
        if replaces and not _begins_with(target, replaces):
            raise UserError(
                f"{path} is there, and no file of the kind that is to be written; delete it first,"
                " or name another file"
            )
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write the file {path}: {error.strerror or error};"
            f" name a file in a directory that exists and is writable"
        ) from error


def _begins_with(path: Path, beginnings: tuple[bytes, ...]) -> bool:
    """Whether a file begins with one of these, is empty, or is not there."""
    try:
        with path.open("rb") as file:
            found = file.read(max(map(len, beginnings)))
    except FileNotFoundError:
        return True
    return not found or found.startswith(beginnings)


def _target(path: Path) -> Path:
    """The plain file that is there, or is going to be."""
    if not path.name:
        raise OSError("that names no file")
    # What is there and no file, such as a device, would be lost.
    if path.exists() and not path.is_file():
        raise OSError("it is there and no plain file")
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError("its symbolic links lead in a circle")
    return target


def check_plain_file(path: Path, most_bytes: int) -> None:
    """Makes sure that reading a file comes to an end: a pipe or a device may have none.

    Raises OSError where it is missing, larger than any file of its kind, or no plain file.
    """
    found = path.stat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):  # a folder says so itself
        raise OSError(errno.EINVAL, "it is no plain file")
    if found.st_size > most_bytes:
        raise OSError(
            errno.EFBIG, f"it has {found.st_size:,} bytes, allowed are at most {most_bytes:,}"
        )


def open_plain_file(path: Path) -> BinaryIO:
    """Opens a file that may be replaced by anything at any time.

    Raises OSError where it is missing, or no plain file.
    """
    # To open a pipe that nobody writes to would wait for ever.
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")  # noqa: SIM115 (the caller closes)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no plain file")
    return file


class OwnedFolder:
    """A new folder that goes with its owner; if that is killed, with the next one of its kind.

    The owner holds a lock on it, which the kernel frees with him. A context manager.

    Args:
        prefix: Of its name, which all of its kind have in common.
        place: Where it is; by default where temporary files are.

    Attributes:
        path: Its own.
    """

    def __init__(self, prefix: str, place: Path | None = None) -> None:
        self._prefix = prefix
        place = Path(tempfile.gettempdir()) if place is None else place
        self._lock: int | None = None
        with suppress(_NoLocksHereError):  # so nobody removes it either
            _remove_ownerless(prefix, place)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            with suppress(_NoLocksHereError):
                self._lock = _lock_on(self.path)
                if self._lock is None:  # another start took it for ownerless
                    continue
            break

    def keep(self, prefix: str) -> Path:
        """Leaves it to the user for good, under a name with another prefix; gives its path."""
        kept = self.path.with_name(prefix + self.path.name.removeprefix(self._prefix))
        self.path.rename(kept)
        self._unlock()
        return kept

    def remove(self) -> None:
        """Removes it; may be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


class _NoLocksHereError(Exception):
    """This file system has no locks."""


def _remove_ownerless(prefix: str, place: Path) -> None:
    for path in place.glob(f"{glob.escape(prefix)}*"):
        lock = _lock_on(path)
        if lock is not None:
            if os.fstat(lock).st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock_on(folder: Path) -> int | None:
    """A descriptor that holds the lock; None where somebody else has it, or there is no folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(folder.stat(), os.fstat(descriptor)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        os.close(descriptor)
        raise _NoLocksHereError from error
    os.close(descriptor)
    return None
