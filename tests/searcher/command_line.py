"""What the tests of the command line share."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from click.testing import Result

Invoke = Callable[..., Result]

QUICK = ["--strategy", "paper", "--settings", "3", "--runs", "2"]
OTHER = ["--strategy", "paper", "--settings", "2", "--runs", "1"]
LEAST = ["--strategy", "paper", "--settings", "1", "--runs", "1"]  # 2 runs


def error_line(result: Result) -> str:
    """The one line on standard error; nothing may be on standard output."""
    assert result.stdout == ""
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert "Traceback" not in line
    return line


def database_file(url: str) -> Path:
    """The file of a SQLite URL."""
    return Path(url.removeprefix("sqlite:///"))


def copy_database(written: Path, copy: Path) -> None:
    """Leaves none of the files that stay open beside one that was written."""
    with closing(sqlite3.connect(written)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def export(invoke: Invoke, path: Path, *arguments: str, version: str = "current") -> Path:
    """Exports a policy of the generated workload into a file."""
    policy = f"generated@{version}"
    result = invoke("policy", "export", policy, "-o", str(path), *arguments)
    assert result.exit_code == 0, result.stderr
    return path


def elsewhere(folder: Path) -> str:
    """URL of another database, which does not exist yet."""
    return f"sqlite:///{folder}/elsewhere.db"
