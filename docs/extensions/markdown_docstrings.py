"""Docstrings here are Google style with Markdown in them; Sphinx reads reStructuredText.

Single backticks are left to `default_role`; what differs besides are the fenced examples.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

__all__ = ["literal_blocks", "setup"]

_FENCE = "```"


def literal_blocks(lines: list[str]) -> list[str]:
    """The lines with each fenced block as a literal block of reStructuredText."""
    made: list[str] = []
    inside = False
    for line in lines:
        if line.lstrip().startswith(_FENCE):
            inside = not inside
            indent = line[: len(line) - len(line.lstrip())]
            made += [f"{indent}::", ""] if inside else [""]
        else:
            made.append(f"    {line}" if inside and line else line)
    return made


def _process(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = literal_blocks(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the extension; napoleon comes after it."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True}
