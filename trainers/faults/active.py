"""Tracks which injections are active during a run; pure, single-threaded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from syncswitch.trainers.faults.grammar import Extent, Injection

SIMULATED_ABSENCE = Extent(3.0, False)
"""Absence of a killed worker of a simulated cluster, unless its injection says otherwise."""


@dataclass(frozen=True, slots=True)
class Started:
    """An injection begins, possibly not for the first time."""

    injection: Injection


@dataclass(frozen=True, slots=True)
class Ended:
    """An injection ends; a real kill or hang does not end by itself."""

    injection: Injection


@dataclass(slots=True)
class _Occurrence:
    """One occurrence of an injection.

    Attributes:
        injection: The injection.
        begins: Its beginning.
        lasting: Its length; None where it does not end.
        end_done: Worker-steps at which it ends; infinite before it begins, or if it ends by time.
        end_seconds: Training time at which it ends; infinite likewise.
    """

    injection: Injection
    begins: Extent
    lasting: Extent | None
    end_done: float = math.inf
    end_seconds: float = math.inf


class ActiveInjections:
    """Begins and ends a run's injections as it progresses.

    A percent is reached when that share of W worker-steps is done, a time when that much training
    time has passed since the start of the run. Each occurrence happens once, even if the run falls
    back to an earlier worker-step.

    Args:
        injections: The run's injections.
        total_worker_steps: W.
        done: Worker-steps that the run begins with. What is over by then does not happen again,
            assuming an even pace where it begins at a percent and lasts for a time, or vice versa.
        now_seconds: Training time that the run begins with.
        resumed: Whether the run resumes after an interruption: then no injection kills its chief
            again, which would never end, and no kill or hang is repeated at the same worker-step.
        simulated: Whether killed workers come back.
    """

    def __init__(
        self,
        injections: Iterable[Injection],
        total_worker_steps: int,
        *,
        done: int = 0,
        now_seconds: float = 0.0,
        resumed: bool = False,
        simulated: bool = False,
    ) -> None:
        self._total = total_worker_steps
        self._simulated = simulated
        self._active: list[_Occurrence] = []
        self._delays: dict[int, float] = {}
        self._slowdowns: dict[int, float] = {}
        found = [one for each in injections for one in self._occurrences(each, resumed)]
        self._pending = [one for one in found if not self._is_over(one, done, now_seconds, resumed)]
        self._look_ahead()

    @property
    def next_seconds(self) -> float:
        """Training time of the next beginning or end; infinite for none."""
        return self._next_seconds

    def advance(self, done: int, now_seconds: float) -> list[Started | Ended]:
        """Ends and then begins the injections that are due, each in their order."""
        if done < self._next_done and now_seconds < self._next_seconds:
            return []
        changes: list[Started | Ended] = []
        for one in [each for each in self._active if _has_ended(each, done, now_seconds)]:
            self._active.remove(one)
            changes.append(Ended(one.injection))
        due = [one for one in self._pending if self._has_come(one.begins, done, now_seconds)]
        for one in due:
            self._pending.remove(one)
            changes += self._begin(one, done, now_seconds)
        self._look_ahead()
        self._weigh()
        return changes

    def end(self) -> list[Ended]:
        """Ends all active injections, when the run is over."""
        changes = [Ended(one.injection) for one in self._active]
        self._active.clear()
        self._look_ahead()
        self._weigh()
        return changes

    def delay_seconds(self, worker: int) -> float:
        """Seconds currently added to each worker-step of a worker."""
        return self._delays.get(worker, 0.0)

    def slowdown(self, worker: int) -> float:
        """Current factor on the duration of a worker's steps, before the delay."""
        return self._slowdowns.get(worker, 1.0)

    def _occurrences(self, injection: Injection, resumed: bool) -> list[_Occurrence]:
        if resumed and injection.role == "chief":
            return []
        lasting = injection.lasting
        if self._simulated and injection.kind == "kill" and lasting is None:
            lasting = SIMULATED_ABSENCE
        return [_Occurrence(injection, begins, lasting) for begins in injection.beginnings]

    def _is_over(self, one: _Occurrence, done: int, now_seconds: float, resumed: bool) -> bool:
        if (done, now_seconds) == (0, 0.0) or not self._has_come(one.begins, done, now_seconds):
            return False
        began_done, began_seconds = self._moment(one.begins, done, now_seconds)
        if one.lasting is None:
            return resumed or (began_done, began_seconds) < (done, now_seconds)
        end_done, end_seconds = self._end(one.lasting, began_done, began_seconds)
        return end_done <= done or end_seconds <= now_seconds

    def _moment(self, extent: Extent, done: int, now_seconds: float) -> tuple[float, float]:
        """Worker-steps and training time at which a past extent was reached, at an even pace."""
        if extent.is_percent:
            steps = self._steps(extent)
            return steps, now_seconds * steps / done if done else 0.0
        return done * extent.value / now_seconds if now_seconds else 0.0, extent.value

    def _begin(self, one: _Occurrence, done: int, now_seconds: float) -> list[Started | Ended]:
        changes: list[Started | Ended] = []
        for earlier in [each for each in self._active if each.injection == one.injection]:
            # The same injection twice at a time would count twice.
            self._active.remove(earlier)
            changes.append(Ended(earlier.injection))
        changes.append(Started(one.injection))
        if one.lasting is not None:
            began = self._moment(one.begins, done, now_seconds)
            one.end_done, one.end_seconds = self._end(one.lasting, *began)
            self._active.append(one)
        return changes

    def _end(self, lasting: Extent, done: float, now_seconds: float) -> tuple[float, float]:
        if lasting.is_percent:
            return done + self._steps(lasting), math.inf
        return math.inf, now_seconds + lasting.value

    def _has_come(self, extent: Extent, done: int, now_seconds: float) -> bool:
        if extent.is_percent:
            return done >= self._steps(extent)
        return now_seconds >= extent.value

    def _steps(self, extent: Extent) -> float:
        return extent.value * self._total / 100

    def _look_ahead(self) -> None:
        """Finds until when `advance` has nothing to do."""
        begins = [one.begins for one in self._pending]
        self._next_done = min(
            [self._steps(each) for each in begins if each.is_percent]
            + [one.end_done for one in self._active],
            default=math.inf,
        )
        self._next_seconds = min(
            [each.value for each in begins if not each.is_percent]
            + [one.end_seconds for one in self._active],
            default=math.inf,
        )

    def _weigh(self) -> None:
        self._delays, self._slowdowns = {}, {}
        for one in self._active:
            injection = one.injection
            worker = injection.worker
            if worker is None:
                continue
            self._delays[worker] = self.delay_seconds(worker) + injection.delay_seconds
            self._slowdowns[worker] = self.slowdown(worker) * injection.slowdown


def _has_ended(one: _Occurrence, done: int, now_seconds: float) -> bool:
    return done >= one.end_done or now_seconds >= one.end_seconds
