"""Logs of training runs, made up with known speeds and pauses; the published ones; recordings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reproduction.logs import LogRow
from reproduction.replays import PlayedRecording
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.trainers.replay import RecordedRun, Recording
from tests.identities import GENERATED

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "logs"

needs_paper = pytest.mark.skipif(
    not PAPER.is_dir(), reason=f"the published logs are not at {PAPER}"
)

STOP = StopRule(precision=0.005)


def recorded(*runs: tuple[float, float, float] | RecordedRun) -> PlayedRecording:
    """Runs with these switch points, accuracies and times; each has its number as its name."""
    made = [run if isinstance(run, RecordedRun) else RecordedRun(*run) for run in runs]
    named = (replace(run, name=str(number)) for number, run in enumerate(made))
    return PlayedRecording.of(Recording(GENERATED, tuple(named)), STOP)


BASELINE = [(100.0, accuracy, 100.0) for accuracy in (0.90, 0.91, 0.92)]
HALF = [(50.0, accuracy, 60.0) for accuracy in (0.90, 0.91, 0.92)]
QUARTER = [(25.0, accuracy, 40.0) for accuracy in (0.80, 0.81, 0.82)]
RUNS = recorded(*BASELINE, *HALF, *QUARTER)

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
