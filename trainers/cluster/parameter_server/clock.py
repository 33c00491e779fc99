"""The time that a run trains."""

from __future__ import annotations

import time


class TrainingClock:
    """Runs while the cluster trains, without what the training waits for tests."""

    def __init__(self, elapsed_seconds: float) -> None:
        self._elapsed_seconds = elapsed_seconds
        self._start: float | None = None
        self._last_update = time.perf_counter()
        self._waited_seconds = self._waited_before_update_seconds = 0.0

    @property
    def last_update_seconds(self) -> float:
        """Training time at the last update."""
        start = self._start  # read once: other threads look at the time as well
        if start is None:
            return self._elapsed_seconds
        since = self._last_update - start - self._waited_before_update_seconds
        return self._elapsed_seconds + max(0.0, since)

    @property
    def now_seconds(self) -> float:
        """Training time now."""
        start = self._start
        if start is None:
            return self._elapsed_seconds
        since = time.perf_counter() - start - self._waited_seconds
        return self._elapsed_seconds + max(0.0, since)

    @property
    def idle_seconds(self) -> float:
        """Time on the wall since the last update."""
        return time.perf_counter() - self._last_update

    def add(self, seconds: float) -> None:
        """Counts what was not training, but is its price. The clock stands still."""
        self._elapsed_seconds += seconds

    def start(self) -> None:
        """Goes on: a segment begins."""
        self._start = time.perf_counter()
        self._waited_seconds = self._waited_before_update_seconds = 0.0

    def mark_update(self) -> None:
        """Records that an update was made; what is waited for from here on is not in it."""
        self._last_update = time.perf_counter()
        self._waited_before_update_seconds = self._waited_seconds

    def wait(self, seconds: float) -> None:
        """Leaves out what the training waited for a test."""
        self._waited_seconds += seconds

    def leave_out(self, seconds: float) -> None:
        """Leaves out of `idle_seconds` what was done between two segments for another purpose."""
        self._last_update += seconds

    def lose(self) -> None:
        """Stands still now: all that went by since the last update was lost."""
        self._elapsed_seconds = self.last_update_seconds + self.idle_seconds
        self._start = None
        self._last_update = time.perf_counter()

    def stop(self) -> None:
        """Stands still at the last update: a segment is over."""
        self._elapsed_seconds = self.last_update_seconds
        self._start = None
