"""The campaign of failures: what it does to a run by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import failures
from benchmarks.failure_cases import Case, drawn_cases
from benchmarks.failure_processes import LaneDiedError
from benchmarks.failure_table import Outcome


def test_a_checkpoint_is_cut_once_nothing_can_write_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case, *_) = (one for one in drawn_cases(200, 0) if one.truncated_percent is not None)

    def written(percent: int) -> Path:
        path = tmp_path / f"seed-1-at-{percent}.npz"
        path.write_bytes(b"whole" * 2)
        os.utime(path, (percent, percent))
        return path

    class Lane:
        lane = case.lane

        def send(self, message: Any) -> None:
            """Nothing has to know it."""

        def close(self) -> list[str]:
            written(100)  # by a chief that outlives what has started it
            return []

    class Run(failures._Run):
        def follow(self, lane: Any) -> Any:
            self._is_to_kill = False
            raise LaneDiedError

    def lane_of(campaign: failures.Campaign, _case: Case, _outcome: Outcome) -> Any:
        campaign._lane = Lane()  # type: ignore[assignment]
        return campaign._lane

    monkeypatch.setattr(failures.Campaign, "_lane_of", lane_of)
    monkeypatch.setattr(failures, "_MOST_STARTS", 1)
    earlier = written(90)
    failures.Campaign(tmp_path, tmp_path)._train(Run(case, tmp_path), Outcome(case))
    assert earlier.read_bytes() == b"whole" * 2
    assert (tmp_path / "seed-1-at-100.npz").read_bytes() == b"whole"
