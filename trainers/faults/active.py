"""Tracks which injections are active during a run; pure, single-threaded."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

from syncswitch.trainers.faults.injections import Extent, Injection


class _Moment(NamedTuple):
    """A moment of a run; of one that is to come, one of the two is infinite."""

    done: float
    seconds: float


class ActiveInjections:
    """Begins and ends a run's injections as it progresses.

    A percentage is reached when that share of the W worker-steps is done, a time when the run has
    trained for that long. Each injection happens once, even if the run falls back to an earlier
    worker-step.

    What is over when the run begins, with so many worker-steps `done` and seconds of training, does
    not happen again. Where an injection begins at a percentage and lasts for a time, or vice versa,
    an even pace is assumed. In a run that is `resumed` after an interruption no injection kills its
    chief again, which would never end, and no kill or hang is repeated at the same worker-step.
    """

    def __init__(
        self,
        injections: Iterable[Injection],
        total_worker_steps: int,
        *,
        done: int = 0,
        now_seconds: float = 0.0,
        resumed: bool = False,
    ) -> None:
        self._total = total_worker_steps
        now = _Moment(done, now_seconds)
        self._beginnings = {
            injection: self._after(injection.at, _Moment(0, 0))
            for injection in injections
            if not self._is_over(injection, now, resumed)
        }
        self._ends: dict[Injection, _Moment] = {}
        self._update()

    @property
    def next_seconds(self) -> float:
        """Training time of the next beginning or end that is set by time; infinite for none."""
        return self._next.seconds

    def advance(self, done: int, now_seconds: float) -> list[tuple[Injection, bool]]:
        """Ends and then begins the injections that are due, each in their order.

        Returns them, each with whether it begins; a real kill or hang never ends by itself.
        """
        now = _Moment(done, now_seconds)
        if not _is_reached(self._next, now):
            return []
        ended = [injection for injection, end in self._ends.items() if _is_reached(end, now)]
        begun = [
            injection for injection, begin in self._beginnings.items() if _is_reached(begin, now)
        ]
        for injection in ended:
            del self._ends[injection]
        for injection in begun:
            del self._beginnings[injection]
            if injection.lasting is not None:
                began = self._reached_at(injection.at, now)
                self._ends[injection] = self._after(injection.lasting, began)
        self._update()
        return [*zip(ended, repeat(False)), *zip(begun, repeat(True))]

    def delay_seconds(self, worker: int) -> float:
        """Seconds currently added to each worker-step of a worker."""
        return self._delays.get(worker, 0.0)

    def slowdown(self, worker: int) -> float:
        """Current factor on the duration of a worker's steps, before the delay."""
        return self._slowdowns.get(worker, 1.0)

    def _is_over(self, injection: Injection, now: _Moment, resumed: bool) -> bool:
        if resumed and injection.role == "chief":
            return True
        begin = self._after(injection.at, _Moment(0, 0))
        if now == (0, 0) or not _is_reached(begin, now):
            return False
        began = self._reached_at(injection.at, now)
        if injection.lasting is None:
            return resumed or began < now
        return _is_reached(self._after(injection.lasting, began), now)

    def _after(self, extent: Extent, moment: _Moment) -> _Moment:
        if extent.is_percent:
            return _Moment(moment.done + self._worker_steps(extent), math.inf)
        return _Moment(math.inf, moment.seconds + extent.value)

    def _reached_at(self, extent: Extent, now: _Moment) -> _Moment:
        """The moment in the past at which an extent was reached, assuming an even pace."""
        if extent.is_percent:
            steps = self._worker_steps(extent)
            return _Moment(steps, now.seconds * steps / now.done if now.done else 0.0)
        return _Moment(now.done * extent.value / now.seconds if now.seconds else 0.0, extent.value)

    def _worker_steps(self, extent: Extent) -> float:
        return extent.value * self._total / 100

    def _update(self) -> None:
        moments = [*self._beginnings.values(), *self._ends.values()]
        self._next = _Moment(
            min((moment.done for moment in moments), default=math.inf),
            min((moment.seconds for moment in moments), default=math.inf),
        )
        delays = defaultdict[int, float](float)
        slowdowns = defaultdict[int, float](lambda: 1.0)
        for injection in self._ends:
            delays[injection.number] += injection.delay_seconds
            slowdowns[injection.number] *= injection.slowdown
        # Workers' threads read these at any time.
        self._delays, self._slowdowns = delays, slowdowns


def _is_reached(moment: _Moment, now: _Moment) -> bool:
    return now.done >= moment.done or now.seconds >= moment.seconds
