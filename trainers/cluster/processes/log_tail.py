"""The last lines of a log, for messages."""

from __future__ import annotations

import os
from typing import IO

_LINES = 5
_LONGEST_LINE = 200


def tail_of_log(log: IO[bytes]) -> str:
    """The last lines of a log, shortened; ends with neither line nor full stop."""
    size = log.seek(0, os.SEEK_END)
    # Enough for lines of the longest letters.
    log.seek(max(0, size - _LINES * _LONGEST_LINE * 4))
    lines = log.read().decode(errors="replace").strip().splitlines()
    tail = " | ".join(line.strip()[:_LONGEST_LINE] for line in lines[-_LINES:]) or "nothing"
    return f"its last words: {tail}"
