"""What a training script may import."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from syncswitch.trainers.command import output_dir, report, seed, switch_step


def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SYNCSWITCH_SWITCH_STEP", "0")
    monkeypatch.setenv("SYNCSWITCH_SEED", "7")
    monkeypatch.setenv("SYNCSWITCH_OUTPUT_DIR", str(tmp_path))
    assert (switch_step(5), seed(1), output_dir()) == (0, 7, tmp_path)


def test_a_script_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (switch_step(5), seed(), output_dir("runs")) == (5, 0, Path("runs"))
    report(100, 0.5)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LookupError, match="set SYNCSWITCH_SWITCH_STEP, or call switch_step"):
        switch_step()


def test_reports_are_lines_that_the_trainer_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SYNCSWITCH_OUTPUT_DIR", str(tmp_path))
    report(0, 0.1)
    report(100, 0.5, seconds=2, loss=0.7)
    report(150, val_loss=0.7, f1=0.5)
    report(200, math.nan, seconds=4)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 0, "accuracy": 0.1},
        {"step": 100, "accuracy": 0.5, "seconds": 2.0, "loss": 0.7},
        {"step": 150, "val_loss": 0.7, "f1": 0.5},
        {"step": 200, "seconds": 4.0, "diverged": True},
    ]


def test_it_is_light() -> None:
    code = (
        "import sys; from syncswitch.trainers.command import report;"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorflow", "keras", "numpy", "click"} & set(done.stdout.split())
