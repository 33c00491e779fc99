"""Tables of runs made elsewhere, as `import` reads them, with known times."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def rows(
    workload: str, run: str, percent: float = 50, best_accuracy: float = 0.9, **others: Any
) -> list[dict[str, Any]]:
    """A run of 8,000 worker-steps: BSP takes 0.25 s for each, ASP too, and a switch 100 s."""
    steps = [0, 2000, 4000, *range(4250, 8001, 250)] if percent == 50 else range(0, 8001, 2000)
    return [
        {
            "workload": workload,
            "run": run,
            "first_protocol": "bsp",
            "second_protocol": "asp",
            "switch_percent": percent,
            "replicate": 1,
            "workers": 8,
            "total_worker_steps": 8000,
            "switch_overhead_seconds": 100.0 if 0 < percent < 100 else 0.0,
            "worker_step": step,
            "elapsed_seconds": step / 4,
            "accuracy": best_accuracy * (1 - 0.5 ** (1 + number)),
            "training_loss": 2.0 / (1 + number),
            **others,
        }
        for number, step in enumerate(steps)
    ]


def lost(workload: str, run: str, percent: float, **others: Any) -> list[dict[str, Any]]:
    """A run of which only its divergence is known."""
    nothing = dict.fromkeys(("worker_step", "elapsed_seconds", "accuracy", "training_loss"), "")
    return [{**rows(workload, run, percent)[0], "diverged": "yes", **nothing, **others}]


def write_table(path: Path, *runs: Iterable[Row]) -> Path:
    """Writes runs one after the other; a column is empty for those that have it not."""
    found = [row for run in runs for row in run]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, dict.fromkeys(name for row in found for name in row))
        writer.writeheader()
        writer.writerows(found)
    return path
