"""What the worker-steps of a run take: computing, the exchange with others, waiting; pure."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

_LAST_STEPS = 16
"""Steps of each worker that count, so that what was compiled before and a hiccup do not."""

_FEWEST_STEPS = 4


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What a step takes; all in seconds.

    Attributes:
        compute: Of each worker, computing a gradient.
        exchange: Pulling parameters and pushing the gradient, in the mean of the workers.
    """

    compute: tuple[float, ...]
    exchange: float

    @property
    def least(self) -> float:
        """Of a worker-step where nobody waits and sending is free: no protocol is faster."""
        return 1.0 / sum(1.0 / seconds for seconds in self.compute)

    @property
    def least_in_rounds(self) -> float:
        """Of a worker-step where all wait for the slowest, and sending is free."""
        return max(self.compute) / len(self.compute)

    def expected(self, steps: int) -> float:
        """Of a worker-step where nobody waits, and each worker sends once in so many steps."""
        return 1.0 / sum(1.0 / (seconds + self.exchange / steps) for seconds in self.compute)

    def text(self, protocol: str, step_seconds: float) -> str:
        """Where the time of a protocol's rounds goes, a worker-step of which takes so long."""
        compute = statistics.fmean(self.compute)
        waits = max(0.0, len(self.compute) * step_seconds - compute - self.exchange)
        return (
            f"in a round of {protocol} a worker computes for {compute:.3g} s, sends and receives"
            f" for {_to_microseconds(self.exchange):.3g} s and waits for"
            f" {_to_microseconds(waits):.3g} s"
        )


def _to_microseconds(seconds: float) -> float:
    return round(seconds, 6)  # differences of times are never quite 0


class LastSteps:
    """The last steps of each worker."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._steps: dict[int, deque[tuple[float, float]]] = {}

    def add(self, worker: int, compute_seconds: float, busy_seconds: float) -> None:
        """Counts a step; `busy_seconds` are those of computing and of the exchange."""
        steps = self._steps.setdefault(worker, deque(maxlen=_LAST_STEPS))
        steps.append((compute_seconds, max(0.0, busy_seconds - compute_seconds)))

    def clear(self) -> None:
        self._steps.clear()

    def times(self) -> StepTimes | None:
        """The medians; None while too few steps of a worker are known, or the clock saw nothing."""
        known = [steps for steps in self._steps.values() if len(steps) >= _FEWEST_STEPS]
        if len(known) < self._workers:
            return None
        columns = [tuple(map(statistics.median, zip(*steps, strict=True))) for steps in known]
        compute = tuple(seconds for seconds, _ in columns)
        if min(compute) <= 0:
            return None
        return StepTimes(compute, statistics.fmean(seconds for _, seconds in columns))
