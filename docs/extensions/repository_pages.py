"""Pages of the repository that the site holds as well: links to them stay in the site.

On the site a page of `included/` shows the file; where the sources are read, links lead to the file
itself.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

__all__ = ["INCLUDED", "setup"]

INCLUDED = {
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "examples/pytorch/README.md": "pytorch_examples",
}
"""Page by file."""

_LINK = re.compile(r"\]\((?:\.\./)+(?P<path>[^)#]+\.md)(?=[)#])")


def _link(match: re.Match[str]) -> str:
    page = INCLUDED.get(match["path"])
    return match[0] if page is None else f"](/included/{page}.md"


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = _LINK.sub(_link, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the extension."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
