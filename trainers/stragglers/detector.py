"""Detects stragglers by the throughput of the workers; pure, single-threaded.

Sync-Switch paper, section IV-B: a straggler's throughput is below mean - std of the cluster in
several consecutive windows. Of k equally slow workers among n that holds if and only if k < n/2,
however small the difference, and never with two workers; so a straggler also has to be slower than
the median by a relative floor.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from syncswitch.storage.records.trial import RunEvent

# Rates that differ by less are equal, up to rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """When a worker counts as a straggler.

    Windows are short, and many consecutive judgements have to agree, so that a slow step affects
    few judgements, and one good judgement clears a suspicion. With the defaults `make benchmark`
    counts at most one false alarm in 1,000 rounds, even if step times vary by half; a worker that
    is half as fast is found within 10 to 16 rounds (median). With windows of 5 steps and 3
    judgements there are 80 to 350 false alarms if the times vary by 30 %.

    Attributes:
        window_steps: Number of latest worker-steps over which a throughput is measured.
        consecutive_windows: Number of consecutive judgements that have to agree, both to detect a
            straggler and to clear it.
        relative_floor: Least share by which a straggler is slower than the median, 0 to 1.
        permanent_after_seconds: Time after which a slowness is no longer transient, as a new worker
            would be ready by then (paper: 100 s).
    """

    window_steps: int = 3
    consecutive_windows: int = 10
    relative_floor: float = 0.10
    permanent_after_seconds: float = 100.0


class Comparison(NamedTuple):
    """The throughput of several workers side by side, in worker-steps per second.

    `limit` is the mean minus the (population) standard deviation of all; `slow` are the workers
    below both the limit and the relative floor.
    """

    median: float
    limit: float
    slow: frozenset[int]


def compare(rates: Mapping[int, float], relative_floor: float) -> Comparison:
    """Finds the slow workers by their worker-steps per second, of which there is at least one."""
    # With fsum the answer does not depend on the order of the workers.
    mean = math.fsum(rates.values()) / len(rates)
    deviations = ((rate - mean) ** 2 for rate in rates.values())
    limit = mean - math.sqrt(math.fsum(deviations) / len(rates))
    median = statistics.median(rates.values())
    highest = min(limit - _ROUNDING * mean, median * (1.0 - relative_floor - _ROUNDING))
    return Comparison(median, limit, frozenset(w for w, rate in rates.items() if rate < highest))


@dataclass(slots=True)
class _Worker:
    """The durations of a worker's latest steps, and what was found about it.

    `is_fresh`: it has done a step since the last judgement. `slow` and `fast` count the consecutive
    judgements that called it slow, and that did not. `detected_seconds` is None while it is no
    straggler. `is_doubtful`: it was one before an absence, and is not confirmed since.
    """

    seconds: deque[float]
    is_fresh: bool = False
    slow: int = 0
    fast: int = 0
    detected_seconds: float | None = None
    is_doubtful: bool = False
    is_permanent: bool = False

    def forget(self) -> None:
        """Drops all observations, but remembers a straggler as doubtful."""
        self.seconds.clear()
        self.slow = self.fast = 0
        self.is_doubtful = self.detected_seconds is not None


class StragglerDetector:
    """Watches the workers of one run; `active` ones, at the start all, are compared."""

    def __init__(
        self, workers: Iterable[int], settings: DetectorSettings = DetectorSettings()
    ) -> None:
        self.settings = settings
        self._workers = {worker: _Worker(deque(maxlen=settings.window_steps)) for worker in workers}
        self.active = set(self._workers)

    @property
    def stragglers(self) -> frozenset[int]:
        """Active workers that were detected and have not been cleared.

        A straggler that comes back from an absence counts once it is found slow again.
        """
        return frozenset(
            worker
            for worker in self.active
            if self._workers[worker].detected_seconds is not None
            and not self._workers[worker].is_doubtful
        )

    def observe(self, worker: int, busy_seconds: float) -> None:
        """Records a worker-step, unless the worker is away.

        It took so long from pull to push, without waiting at a barrier, which would make all
        workers look alike. 0 or less means less than the clock's resolution.
        """
        if worker in self.active:
            self._workers[worker].seconds.append(busy_seconds)
            self._workers[worker].is_fresh = True

    def rate(self, worker: int) -> float | None:
        """Worker-steps per second; None if the window is not full or took no measurable time."""
        seconds = self._workers[worker].seconds
        total = math.fsum(seconds)
        if len(seconds) != seconds.maxlen or total <= 0.0:
            return None
        return len(seconds) / total

    def judge(self, done: int, now_seconds: float) -> list[RunEvent]:
        """Compares the active workers that have a full window.

        A worker without a step since the last judgement takes part in the comparison, but is not
        judged again. Returns what is new, `detected`, `cleared` or `permanent`, in ascending order
        of the workers; the seconds of an event are those since the worker was detected.
        """
        rates = {
            worker: rate
            for worker in sorted(self.active)
            if (rate := self.rate(worker)) is not None
        }
        if not rates:
            return []
        median, limit, slow = compare(rates, self.settings.relative_floor)
        consecutive = self.settings.consecutive_windows
        events: list[RunEvent] = []
        for worker, rate in rates.items():
            own = self._workers[worker]
            if not own.is_fresh:
                continue
            own.is_fresh = False
            own.slow, own.fast = (own.slow + 1, 0) if worker in slow else (0, own.fast + 1)
            since, kind = own.detected_seconds, ""
            lasted = None if since is None else now_seconds - since
            if own.fast >= consecutive and lasted is not None:
                own.detected_seconds = None
                own.is_doubtful = own.is_permanent = False
                kind, what = "cleared", f"in {own.fast} windows running no longer slow"
            elif own.slow >= consecutive:
                own.is_doubtful = False
                if lasted is None:
                    own.detected_seconds = now_seconds
                    what = f"below mean - std {limit:.3g}, in {own.slow} windows running"
                    kind = "detected"
                elif not own.is_permanent and lasted >= self.settings.permanent_after_seconds:
                    own.is_permanent = True
                    what = f"and has been slow for {lasted:.3g} s: not transient, replace it"
                    kind = "permanent"
            if kind:
                reason = (
                    f"worker {worker} does {rate:.3g} worker-steps/s, the median is {median:.3g},"
                    f" {what}"
                )
                events.append(RunEvent(kind, done, now_seconds, reason, worker, lasted))
        return events

    def leave(self, worker: int) -> None:
        """Takes a worker out of the comparison, but remembers whether it is a straggler."""
        self.active.discard(worker)
        self._workers[worker].forget()

    def join(self, worker: int) -> None:
        """Takes a worker back into the comparison, without its earlier observations."""
        self._workers[worker].forget()
        self.active.add(worker)
