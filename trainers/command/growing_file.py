"""Reads a file while somebody else writes it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from syncswitch.storage.errors import UserError
from syncswitch.storage.files import open_plain_file

Line = tuple[int, str]
"""Number of a line, from 1, and its text."""

_BLOCK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1 << 20
_TAIL_BYTES = 16_384


class GrowingFile:
    """The whole lines of a file that grows; it need not exist yet.

    A file that became shorter was written anew, and is read again from its start.

    Args:
        path: The file.
        line_end: What ends a line; a progress bar ends its lines with a carriage return.
    """

    def __init__(self, path: Path, line_end: bytes = rb"\n") -> None:
        self._path = path
        self._line_end = re.compile(line_end)
        self._offset = 0
        self._rest = b""
        self._number = 0

    def new_lines(self, *, is_over: bool = False) -> Iterator[Line]:
        """Lines that were ended since the last call, at most a block of them.

        Args:
            is_over: Nobody writes any more: all blocks are read, and what is left is a line, too.
        """
        while block := self._next_block():
            *whole, self._rest = self._line_end.split(self._rest + block)
            if len(self._rest) > _LONGEST_LINE_BYTES:
                whole, self._rest = [*whole, self._rest], b""
            for line in whole:
                yield self._numbered(line)
            if not is_over:
                return  # whoever reads has other things to look at meanwhile
        if is_over and self._rest:
            line, self._rest = self._rest, b""
            yield self._numbered(line)

    def _next_block(self) -> bytes:
        try:
            with open_plain_file(self._path) as file:
                if file.seek(0, 2) < self._offset:
                    self._offset, self._rest, self._number = 0, b"", 0
                file.seek(self._offset)
                block = file.read(_BLOCK_BYTES)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise UserError(f"{self._path} cannot be read: {error.strerror or error}") from error
        self._offset += len(block)
        return block

    def _numbered(self, line: bytes) -> Line:
        self._number += 1
        return self._number, line.decode(errors="replace")


def last_lines(path: Path, count: int) -> list[str]:
    """The end of a file, however long that is; empty lines are left out, and so is a lost file."""
    try:
        with open_plain_file(path) as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return list(deque((line.strip() for line in text.splitlines() if line.strip()), count))


def size_bytes(path: Path) -> int:
    """Size of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
