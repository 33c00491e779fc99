"""Files that appear whole or not at all, and files that somebody else wrote."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
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
