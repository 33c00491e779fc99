"""Makes the test tools of this folder importable, and gives tests a database of their own."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

# A search commits some ten times a run; on a slow disk that is most of the time of these tests.
_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, in memory where the machine has such a place."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="syncswitch-test-") as name:
        yield Path(name)


@pytest.fixture
def url(folder: Path) -> str:
    """URL of a database that does not exist yet."""
    return f"sqlite:///{folder}/search.db"
