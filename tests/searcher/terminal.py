"""Programs on a terminal, as people have them before their eyes."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Sequence

PATIENCE_SECONDS = 120


class Terminal:
    """A program on a terminal of 80 columns and 24 lines, and all that it wrote there.

    Args:
        command: The program and its arguments.
        environment: What it has besides the usual.
    """

    def __init__(self, command: Sequence[str], **environment: str) -> None:
        self._fd, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **environment},
        )
        os.close(theirs)
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
