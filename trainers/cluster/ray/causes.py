"""Why an actor is dead, in few words; pure."""

from __future__ import annotations

import re

_LONGEST = 160
_CAUSE = re.compile(r"\bactor (?:is dead|died) because\b|^[\w.]+(?:Error|Exception): ")


def cause_of_death(text: str) -> str:
    """The telling sentence of what Ray says of an actor, which is a page."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it says nothing"]
    # What the last one names has led to the others.
    line = next((line for line in reversed(lines) if _CAUSE.search(line)), lines[0])
    return line.split(". ")[0].rstrip(".")[:_LONGEST]


def is_not_installed(error: Exception) -> bool:
    """Whether an actor's node misses a package."""
    text = str(error)
    return "ModuleNotFoundError" in text or "failed to import" in text
