"""Logs of training runs, made up with known speeds and pauses, and the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from syncswitch.storage.importing.run_logs import LogRow

PAPER = Path(__file__).parents[2] / "shared" / "paper"

needs_paper = pytest.mark.skipif(
    not (PAPER / "manifest.csv").is_file(),
    reason=f"the published logs are not at {PAPER}",
)

STARTED = 1_600_000_000.0
COLUMNS = (
    "setup",
    "run_dir",
    "first_protocol",
    "second_protocol",
    "switch_percent",
    "replicate",
    "workers",
    "total_worker_steps",
)


def walls(
    steps: Sequence[int],
    *,
    switch_step: int = 0,
    first_seconds: float = 1.0,
    second_seconds: float = 1.0,
    pauses: Sequence[tuple[int, float]] = (),
) -> list[float]:
    """When a run writes each step; a pause is right after its step."""
    return [
        STARTED
        + min(step, switch_step) * first_seconds
        + max(step - switch_step, 0) * second_seconds
        + sum(seconds for at, seconds in pauses if step > at)
        for step in steps
    ]


def log_rows(steps: Sequence[int], times: Sequence[float], values: Iterable[float]) -> list[LogRow]:
    return [LogRow(*row) for row in zip(times, steps, values, strict=True)]


def write_log(path: Path, rows: Iterable[LogRow]) -> None:
    lines = [f"{row.wall_time_seconds},{row.step},{row.value}\r\n" for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("Wall time,Step,Value\r\n" + "".join(lines), newline="")


def write_manifest(
    path: Path, rows: Sequence[Sequence[object]], columns: Sequence[str] = COLUMNS
) -> Path:
    lines = [",".join(map(str, cells)) for cells in (columns, *rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_run(
    folder: Path,
    *,
    switch_step: int = 500,
    last_step: int = 4500,
    first_seconds: float = 2.0,
    second_seconds: float = 0.25,
    pauses: Sequence[tuple[int, float]] = ((500, 100.0),),
    best_accuracy: float = 0.9,
) -> None:
    """8 workers, 8000 worker-steps, the first half of them BSP: 1000 s, then ASP: 1000 s."""
    for name, interval in (("acc", 250), ("loss", 50)):
        steps = list(range(0, last_step + 1, interval))
        times = walls(
            steps,
            switch_step=switch_step,
            first_seconds=first_seconds,
            second_seconds=second_seconds,
            pauses=pauses,
        )
        if name == "acc":
            values = [best_accuracy * (1 - 0.5 ** (1 + index)) for index in range(len(steps))]
        else:
            values = [2.0 / (1 + index) for index in range(len(steps))]
        write_log(folder / f"{name}.csv", log_rows(steps, times, values))
