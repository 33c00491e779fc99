"""The fixtures of the searcher's tests: the program stands on it."""

from __future__ import annotations

from tests.searcher.conftest import (
    invoke,
    one_version,
    search_template,
    searched,
    two_clusters,
    two_versions,
    url,
)

__all__ = [
    "invoke",
    "one_version",
    "search_template",
    "searched",
    "two_clusters",
    "two_versions",
    "url",
]
