"""Programs on a terminal, as people have them before their eyes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from pathlib import Path

from tests.warm_program import Fork

PATIENCE_SECONDS = 120


class Terminal:
    """A program (Python `code`) on a terminal of 24 lines, and all that it wrote there."""

    def __init__(self, code: str, *words: str, columns: int = 80, **variables: str) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        usual = {key: os.environ[key] for key in os.environ.keys() - {"COLUMNS", "LINES"}}
        environment = {**usual, "TERM": "xterm", **variables}
        self.process = Fork(code, ["-c", *words], Path.cwd(), environment, (theirs,) * 3)
        self.text = ""

    def type(self, text: str) -> None:
        """Presses these keys."""
        os.write(self._fd, text.encode())

    def wait_for(self, words: str) -> None:
        """Reads until these words come."""
        until = time.monotonic() + PATIENCE_SECONDS
        while words not in self.text:
            assert time.monotonic() < until, self.text
            assert self._read(), self.text

    def end(self) -> int:
        """Reads until the program has ended; gives its exit status."""
        while self._read():
            pass
        os.close(self._fd)
        return self.process.wait(PATIENCE_SECONDS)

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 1.0)[0]:
            return self.process.poll() is None
        try:
            # Without what moves the cursor and colours the text.
            told = os.read(self._fd, 65536).decode(errors="replace")
        except OSError:  # nobody has the other end any more
            return False
        self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", told)
        return True
