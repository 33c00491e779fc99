"""The last lines of a log, for messages."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LINES = 5
_LONGEST_LINE = 200


def tail_of_log(log: Path) -> str:
    """The last lines of a log, shortened; ends with neither line nor full stop."""
    content = b""
    with suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        # Enough for lines of the longest letters.
        file.seek(max(0, size - _LINES * _LONGEST_LINE * 4))
        content = file.read()
    lines = content.decode(errors="replace").strip().splitlines()
    tail = " | ".join(line.strip()[:_LONGEST_LINE] for line in lines[-_LINES:]) or "nothing"
    return f"its last words: {tail}"
