"""Files that somebody else wrote, before they are read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["check_plain_file", "open_plain_file"]


def check_plain_file(path: Path, most_bytes: int) -> None:
    """Makes sure that reading a file comes to an end: a pipe or a device may have none.

    Args:
        path: The file.
        most_bytes: More than any file of its kind has.

    Raises:
        OSError: It is missing, too large, or no plain file.
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

    Raises:
        OSError: It is missing, or no plain file.
    """
    # To open a pipe that nobody writes to would wait for ever.
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")  # noqa: SIM115 (the caller closes)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no plain file")
    return file
