"""The benchmark of databases, tiny: what it measures is not looked at here."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import database
from tests import warm_program


def test_a_database_is_filled_and_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(database, "CALLS", 1)
    # To start a process takes longer than what it has to do.
    monkeypatch.setattr(database, "ProcessPoolExecutor", lambda n, **_: ThreadPoolExecutor(n))
    monkeypatch.setattr(database, "PROGRAM_CALLS", 1)
    monkeypatch.setattr(database, "run", warm_program.run)
    sizes = ("--trials", 96, "--evaluations-per-trial", 2, "--imported-runs", 2)
    monkeypatch.setattr(sys, "argv", ["database", *map(str, sizes), "--plans"])
    database.main()
    out = capsys.readouterr().out
    for what in ("192 evaluations into the tables", "policy by name", "all trials", "2 runs, 4"):
        assert what in out
    assert "SEARCH syncswitch_" in out
