"""The benchmarks of searches, tiny: what they measure is not looked at here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.benchmarks import parallel_searches, strategies


def test_strategies(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    published: Path,
) -> None:
    problems = ("--problems", 2, "--gp-problems", 0, "--simulations", 2, "--logs", published)
    sizes = (*problems, "--processes", 1)
    file = tmp_path / "scores.json"
    monkeypatch.setattr(sys, "argv", ["strategies", *map(str, sizes), "--json", str(file)])
    strategies.main()
    out = capsys.readouterr().out
    report = json.loads(file.read_text())
    jobs = ("generated jobs", "resnet32-cifar10-8", "resnet32-cifar10-16")
    kinds = ("new job", "recurring job")
    assert list(report) == [f"{job}, {kind}" for job in jobs for kind in kinds]
    for heading, found in report.items():
        assert heading in out
        assert all(one["problems"] == 2 for one in found["strategies"])


def test_several_clusters(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    published: Path,
) -> None:
    problems = ("--problems", 2, "--simulations", 2, "--logs", published)
    sizes = (*problems, "--clusters", 1, 2, "--processes", 1)
    file = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["parallel", *map(str, sizes), "--json", str(file)])
    parallel_searches.main()
    assert " same answer " in capsys.readouterr().out
    rows = [(row["strategy"], row["clusters"]) for row in json.loads(file.read_text())]
    of_each = [(name, count) for name in parallel_searches.STRATEGIES for count in (1, 2)]
    assert rows == 3 * of_each
