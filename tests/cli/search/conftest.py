"""The fixtures of the searcher's tests: the program stands on it."""

from __future__ import annotations

from tests.searcher.conftest import (  # noqa: F401 (fixtures)
    invoke,
    one_version,
    search_template,
    searched,
    two_clusters,
    two_versions,
    url,
)
