"""Logs of training runs, made up with known speeds and pauses, and the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from reproduction.logs import LogRow

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "logs"

needs_paper = pytest.mark.skipif(
    not PAPER.is_dir(),
    reason=f"the published logs are not at {PAPER}",
)

STARTED = 1_600_000_000.0


def walls(
    steps: Sequence[int],
    *,
    switch_step: int = 0,
    first_seconds: float = 1.0,
    second_seconds: float = 1.0,
    pauses: Sequence[tuple[int, float]] = (),
) -> list[float]:
    """The wall times at which a run writes each step; a pause comes right after its step."""
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
