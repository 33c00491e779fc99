"""Times of worker-steps: generated ones, and those of `trace.csv`.

They were measured on two busy cores, where four threads trained a small dense model with BSP. From
worker-step 400 to 800 worker 2 slept three times as long as an undisturbed step takes, before each
of its own. There is a line for each push, in the order in which they came.
"""

from __future__ import annotations

import csv
import functools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TRACE = Path(__file__).with_name("trace.csv")

NOISES = ("10 %", "30 %", "spikes", "recorded")
"""Log-normal with that coefficient of variation; 10 % with one step in 50 ten times as long; steps
of the recorded trace in which nobody was slowed, in any order (they vary by half)."""


@dataclass(frozen=True)
class Push:
    """A line of `trace.csv`."""

    worker_step: int
    worker: int
    busy_seconds: float

    @property
    def is_calm(self) -> bool:
        """Neither part of the start nor of the rounds with the straggler."""
        return 40 <= self.worker_step < 400 or self.worker_step >= 840


@functools.cache
def recorded_pushes() -> tuple[Push, ...]:
    with TRACE.open(newline="") as lines:
        return tuple(
            Push(int(row["worker_step"]), int(row["worker"]), float(row["busy_seconds"]))
            for row in csv.DictReader(lines)
        )


def round_seconds(rng: np.random.Generator, noise: str, rounds: int, workers: int) -> np.ndarray:
    """Times of worker-steps, their mean 1 but for spikes; shape (rounds, workers)."""
    if noise == "recorded":
        calm = np.array([push.busy_seconds for push in recorded_pushes() if push.is_calm])
        return rng.choice(calm / calm.mean(), (rounds, workers))
    variation = 0.3 if noise == "30 %" else 0.1
    sigma = math.sqrt(math.log(1.0 + variation**2))
    seconds = rng.lognormal(-(sigma**2) / 2, sigma, (rounds, workers))
    if noise == "spikes":
        seconds[rng.random(seconds.shape) < 0.02] *= 10.0
    return seconds
