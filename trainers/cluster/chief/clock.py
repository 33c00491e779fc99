"""The clock of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


class TrainingClock:
    """Measures training time: it runs while the cluster trains, up to the last update."""

    def __init__(self, elapsed_seconds: float) -> None:
        self._elapsed_seconds = elapsed_seconds
        self._start: float | None = None
        self._last_update = time.perf_counter()

    @property
    def last_update_seconds(self) -> float:
        return self._seconds_at(self._last_update)

    @property
    def now_seconds(self) -> float:
        return self._seconds_at(time.perf_counter())

    @property
    def idle_seconds(self) -> float:
        return time.perf_counter() - self._last_update

    def add(self, seconds: float) -> None:
        """Adds time that counts as training although the clock was stopped."""
        self._elapsed_seconds += seconds

    def start(self) -> None:
        self._start = time.perf_counter()

    def mark_update(self) -> None:
        self._last_update = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Excludes time between two segments from `idle_seconds`."""
        self._last_update += seconds

    def lose(self) -> None:
        """Stops now, so that the time since the last update counts, though it was lost."""
        self._elapsed_seconds = self.last_update_seconds + self.idle_seconds
        self._start = None
        self._last_update = time.perf_counter()

    def stop(self) -> None:
        """Stops at the last update, when a segment is over."""
        self._elapsed_seconds = self.last_update_seconds
        self._start = None

    def _seconds_at(self, moment: float) -> float:
        start = self._start  # read once: another thread may stop the clock
        return self._elapsed_seconds + (0.0 if start is None else max(0.0, moment - start))


@dataclass(frozen=True)
class LostChief:
    """The state of a run when its chief was last heard of, before it died.

    `told_step` is the worker-step of the last evaluation that was reported, -1 for none;
    `heard_seconds` is on the monotonic clock.
    """

    worker_step: int = 0
    elapsed_seconds: float = 0.0
    told_step: int = -1
    heard_seconds: float = field(default_factory=time.monotonic)
    reason: str = ""

    @property
    def now_seconds(self) -> float:
        """The training time by now; the time that its loss costs counts."""
        return self.elapsed_seconds + time.monotonic() - self.heard_seconds
