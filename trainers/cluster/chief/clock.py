"""The training time of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


class TrainingClock:
    """Runs while the cluster trains."""

    def __init__(self, elapsed_seconds: float) -> None:
        self._elapsed_seconds = elapsed_seconds
        self._start: float | None = None
        self._last_update = time.perf_counter()

    @property
    def last_update_seconds(self) -> float:
        """Training time at the last update."""
        start = self._start  # read once: other threads look at the time as well
        if start is None:
            return self._elapsed_seconds
        return self._elapsed_seconds + max(0.0, self._last_update - start)

    @property
    def now_seconds(self) -> float:
        """Training time now."""
        start = self._start
        if start is None:
            return self._elapsed_seconds
        return self._elapsed_seconds + max(0.0, time.perf_counter() - start)

    @property
    def idle_seconds(self) -> float:
        """Time on the wall since the last update."""
        return time.perf_counter() - self._last_update

    def add(self, seconds: float) -> None:
        """Adds time that was not training but is part of its price; the clock stands still."""
        self._elapsed_seconds += seconds

    def start(self) -> None:
        """Starts the clock for a segment."""
        self._start = time.perf_counter()

    def mark_update(self) -> None:
        """Records an update."""
        self._last_update = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Leaves out of `idle_seconds` time spent on other things between two segments."""
        self._last_update += seconds

    def lose(self) -> None:
        """Stops now: all time since the last update was lost."""
        self._elapsed_seconds = self.last_update_seconds + self.idle_seconds
        self._start = None
        self._last_update = time.perf_counter()

    def stop(self) -> None:
        """Stops at the last update, when a segment is over."""
        self._elapsed_seconds = self.last_update_seconds
        self._start = None


@dataclass(frozen=True)
class LostChief:
    """The last words of a chief that died while it trained.

    Attributes:
        worker_step: Worker-steps that were done then.
        elapsed_seconds: Training time then.
        told_step: Worker-step of the last test that it has told of; -1 for none that counts.
        heard_seconds: When that was, on this machine's monotonic clock.
        reason: How it died.
    """

    worker_step: int = 0
    elapsed_seconds: float = 0.0
    told_step: int = -1
    heard_seconds: float = field(default_factory=time.monotonic)
    reason: str = ""

    @property
    def now_seconds(self) -> float:
        """Training time by now: what its loss costs counts."""
        return self.elapsed_seconds + time.monotonic() - self.heard_seconds
