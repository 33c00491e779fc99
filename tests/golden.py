"""A test tool: databases as former releases have made them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

GOLDEN_DATABASES = sorted(Path(__file__).parent.glob("storage/database/golden_database_*.sql"))


def restored(golden: Path, folder: Path) -> str:
    """The URL of a database with these contents."""
    with closing(sqlite3.connect(folder / "golden.db")) as connection:
        connection.executescript(golden.read_text())
    return f"sqlite:///{folder}/golden.db"
