"""The benchmarks of searches, tiny: what they measure is not looked at here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.benchmarks import parallel_searches, strategies


def test_strategies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sizes = ("--problems", 2, "--gp-problems", 0, "--simulations", 0, "--processes", 1)
    file = tmp_path / "scores.json"
    monkeypatch.setattr(sys, "argv", ["strategies", *map(str, sizes), "--json", str(file)])
    strategies.main()
    out = capsys.readouterr().out
    report = json.loads(file.read_text())
    assert set(report) == {"generated jobs, new job", "generated jobs, recurring job"}
    for heading, found in report.items():
        assert heading in out
        assert all(one["problems"] == 2 for one in found["strategies"])


def test_several_clusters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sizes = ("--problems", 2, "--simulations", 0, "--clusters", 1, 2, "--processes", 1)
    file = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["parallel", *map(str, sizes), "--json", str(file)])
    parallel_searches.main()
    assert " same answer " in capsys.readouterr().out
    rows = [(row["strategy"], row["clusters"]) for row in json.loads(file.read_text())]
    assert rows == [(name, count) for name in parallel_searches.STRATEGIES for count in (1, 2)]
