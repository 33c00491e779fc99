"""Writes files that appear whole or not at all, reads foreign ones, and owns temporary folders."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
import shutil
import stat
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from syncswitch.storage.errors import FatalError, UserError

_TAIL_BYTES = 16_384


@contextmanager
def whole_file(path: Path, replaces: tuple[bytes, ...] = ()) -> Iterator[BinaryIO]:
    """Opens a new file to write; readers of the path see the old file or the new one, whole.

    After an error the old file is still there, if there was one. A symbolic link stays, and its
    target is replaced. A file with another beginning than one of `replaces` is not overwritten.
    Raises UserError if the file cannot be written, FatalError if the disk is full.
    """
    try:
        target = _target(path)
        if replaces and target.exists():
            with target.open("rb") as there:
                found = there.read(max(map(len, replaces)))
            if found and not found.startswith(replaces):
                raise UserError(
                    f"{path} exists, and is not a file of the kind that is to be written; delete it"
                    " first, or name another file",
                    code="file-unusable",
                )
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
        try:
            with temporary.open("xb") as file:
                yield file
            put_in_place(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        why = f"cannot write the file {path}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FatalError(
                f"{why}; free some disk space there, or name another file", code="disk-full"
            ) from error
        raise UserError(
            f"{why}; name a file in a directory that exists and is writable", code="file-unusable"
        ) from error


def put_in_place(temporary: Path, target: Path) -> None:
    """Replaces a file by another that is written; afterwards both data and name are on the disk.

    So what the new file makes needless may be removed. Raises OSError.
    """
    sync(temporary)
    os.replace(temporary, target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # a folder may be writable and not readable
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems of networks cannot do it for folders
            raise
    finally:
        os.close(descriptor)


def _target(path: Path) -> Path:
    """Returns the regular file that is there, or is to be made."""
    if not path.name:
        raise OSError("this is not the name of a file")
    # Replacing it would destroy a device, for example.
    if path.exists() and not path.is_file():
        raise OSError("it exists and is not a regular file")
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError("its symbolic links lead in a circle")
    return target


def check_plain_file(path: Path, most_bytes: int) -> None:
    """Makes sure that reading a file comes to an end, unlike a pipe or a device.

    Raises OSError if it is missing, larger than `most_bytes`, or not a regular file.
    """
    found = path.stat()
    if not (
        stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    ):  # reading a folder says so itself
        raise OSError(errno.EINVAL, "it is not a regular file")
    if found.st_size > most_bytes:
        raise OSError(
            errno.EFBIG, f"it has {found.st_size:,} bytes; allowed: at most {most_bytes:,}"
        )


def open_plain_file(path: Path) -> BinaryIO:
    """Opens a file that others may replace by anything at any time.

    Raises OSError if it is missing, or not a regular file.
    """
    # Otherwise, opening a pipe without a writer would wait for ever.
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")  # noqa: SIM115 (the caller closes)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def last_lines(path: Path, count: int) -> list[str]:
    """Returns the last lines of a file that are not empty; none if it cannot be read."""
    try:
        with open_plain_file(path) as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return list(deque((line.strip() for line in text.splitlines() if line.strip()), count))


def check_private(folder: Path) -> None:
    """Makes a folder for what nobody else may read, where everybody may write, such as in `/tmp`.

    Elsewhere nothing is done. Raises OSError if somebody else has prepared it.
    """
    if not folder.parent.is_dir() or not folder.parent.stat().st_mode & stat.S_IWOTH:
        return
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(errno.EPERM, "another user has made this folder, or can open it")


class OwnedFolder:
    """A new folder that is removed with its owner; if that is killed, by the next owner.

    The owner holds a lock on it, which the kernel frees when the process ends. A context manager.

    Args:
        prefix: Prefix of its name; folders with the same prefix are of the same kind.
        place: Directory that contains it; by default that of temporary files.

    Attributes:
        path: Path of the folder.
    """

    def __init__(self, prefix: str, place: Path | None = None) -> None:
        self._prefix = prefix
        place = Path(tempfile.gettempdir()) if place is None else place
        self._lock: int | None = None
        with suppress(_NoLocksHereError):  # then nobody else removes it either
            for path in place.glob(f"{glob.escape(prefix)}*"):
                lock = _lock_on(path)
                if lock is not None:  # its owner is gone
                    if os.fstat(lock).st_uid == os.getuid():
                        shutil.rmtree(path, ignore_errors=True)
                    os.close(lock)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            with suppress(_NoLocksHereError):
                self._lock = _lock_on(self.path)
                if self._lock is None:  # another process has just removed it as ownerless
                    continue
            break

    def keep(self, prefix: str) -> Path:
        """Leaves the folder to the user, under a name with another prefix; returns its path."""
        kept = self.path.with_name(prefix + self.path.name.removeprefix(self._prefix))
        self.path.rename(kept)
        self._unlock()
        return kept

    def remove(self) -> None:
        """Removes the folder; may be called twice."""
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
    """The file system has no locks."""


def _lock_on(folder: Path) -> int | None:
    """Returns a descriptor that holds the lock; None if another process has it, or no folder."""
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
