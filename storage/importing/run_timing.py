"""What the rows of a log say about steps and time: worker-steps, speeds, pauses; pure.

A log counts the optimizer's own steps. One step of a protocol that aggregates consumes n gradients,
one of each worker, so it counts as n worker-steps; one asynchronous step counts as one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing.run_logs import Clock, LogRow

NOTABLE_PAUSE_SECONDS = 60.0
"""A shorter one is lost in the noise of steps and evaluations."""

# So many times as long as usual is no slow stretch any more.
_PAUSE_FACTOR = 5.0
# Below this ratio of speeds nobody can tell two protocols apart.
_DISTINCT_SPEEDS = 2.0
_ASYNCHRONOUS = frozenset({"asp", "dssp", "ssp"})


def worker_steps_per_step(protocol: str, workers: int) -> int:
    """Worker-steps that one step of the optimizer's counter stands for.

    Raises RecordingError where it is not known how this protocol counts.
    """
    if protocol == "bsp":
        return workers
    if protocol in _ASYNCHRONOUS:
        return 1
    known = ", ".join(sorted({"bsp", *_ASYNCHRONOUS}))
    raise RecordingError(f"how protocol {protocol!r} counts its steps is not known; known: {known}")


@dataclass(frozen=True, slots=True)
class Phases:
    """Where a run's counter leaves the first protocol, and what a step counts in each.

    Attributes:
        switch_step: S, steps of the counter in the first protocol; None if nothing comes after.
        first_worker_steps: Of one step before S.
        second_worker_steps: Of one step beyond S.
        slack_steps: The counter may run so far past S while the first protocol ends.
    """

    switch_step: int | None
    first_worker_steps: int
    second_worker_steps: int
    slack_steps: int

    @classmethod
    def of(
        cls, switch_percent: float, total_worker_steps: int, workers: int, protocols: Sequence[str]
    ) -> Phases:
        """The phases of a run as its label tells them.

        Raises RecordingError where it is not known how a protocol counts.
        """
        first, second = (worker_steps_per_step(protocol, workers) for protocol in protocols)
        switch_step = math.floor(switch_percent / 100.0 * total_worker_steps / first + 0.5)
        is_whole = switch_percent >= 100.0
        return cls(None if is_whole else switch_step, first, second, 2 * workers)

    @property
    def is_switched(self) -> bool:
        """Whether both protocols run."""
        return bool(self.switch_step)

    def worker_step(self, step: int) -> int:
        """Worker-steps done when the counter stands at `step`."""
        if self.switch_step is None or step <= self.switch_step:
            return step * self.first_worker_steps
        beyond = step - self.switch_step
        return self.switch_step * self.first_worker_steps + beyond * self.second_worker_steps

    def whole_switch_step(self, last_step: int, total_worker_steps: int) -> int | None:
        """The S with which a run that ends at `last_step` has done W; None where there is none."""
        difference = self.first_worker_steps - self.second_worker_steps
        if difference == 0:
            return None
        step = round((total_worker_steps - last_step * self.second_worker_steps) / difference)
        return step if 0 <= step <= last_step else None

    def speeds(self, rows: Sequence[LogRow]) -> tuple[float | None, float | None]:
        """Median seconds per step in each phase, away from the switch; None where unknown."""
        if self.switch_step is None:
            return seconds_per_step(rows, 0, None), None
        if self.switch_step == 0:
            return None, seconds_per_step(rows, 0, None)
        return (
            seconds_per_step(rows, 0, self.switch_step - self.slack_steps),
            seconds_per_step(rows, self.switch_step + self.slack_steps, None),
        )

    def is_contradicted(self, rows: Sequence[LogRow], whole_switch_step: int) -> bool:
        """Whether the speed says that the protocol changes at `whole_switch_step` and not at S.

        That is so where the steps between the two are as fast as the other protocol than the one
        that S says.
        """
        if not self.switch_step:
            return False
        low, high = sorted((self.switch_step, whole_switch_step))
        before = seconds_per_step(rows, 0, low)
        between = seconds_per_step(rows, low, high)
        after = seconds_per_step(rows, high, None)
        if not (before and between and after):
            return False
        to_first = abs(math.log(between / before))
        to_second = abs(math.log(between / after))
        is_first = to_first < to_second
        is_distinct = abs(math.log(before / after)) >= math.log(_DISTINCT_SPEEDS)
        return is_distinct and is_first == (low == self.switch_step)


@dataclass(frozen=True, slots=True)
class Pause:
    """Time in which a run did not train.

    Attributes:
        began_at_seconds: Wall time.
        seconds: How long.
        step: The last step logged before.
        is_switch: It is the restart at the switch; else something interrupted the run.
    """

    began_at_seconds: float
    seconds: float
    step: int
    is_switch: bool

    @property
    def end_seconds(self) -> float:
        """Wall time."""
        return self.began_at_seconds + self.seconds


def seconds_per_step(rows: Sequence[LogRow], start: int, end: int | None) -> float | None:
    """Median over the intervals within `start` to `end`; None where there is none."""
    found = [
        (after.wall_time_seconds - before.wall_time_seconds) / (after.step - before.step)
        for before, after in pairwise(rows)
        if before.step >= start and (end is None or after.step <= end)
    ]
    return statistics.median(found) if found else None


def pauses(rows: Sequence[LogRow], phases: Phases) -> list[Pause]:
    """Finds where a log's wall time goes on without training.

    The restart of the switch is what the interval around S took beyond the usual time of its steps;
    the longest such interval, as the counter may run a little past S. Any other interval is a pause
    where it takes 5 times as long as usual and a minute longer.
    """
    first, second = phases.speeds(rows)
    if phases.is_switched and (first is None or second is None):
        return []
    switch: Pause | None = None
    found = []
    for before, after in pairwise(rows):
        in_first, in_second = _split(before.step, after.step, phases.switch_step)
        first_seconds = in_first * (first or 0.0)
        expected = first_seconds + in_second * (second or 0.0)
        excess = after.wall_time_seconds - before.wall_time_seconds - expected
        if _is_around(before.step, after.step, phases):
            if excess > 0.0 and (switch is None or excess > switch.seconds):
                began = before.wall_time_seconds + first_seconds
                switch = Pause(began, excess, before.step, is_switch=True)
        elif excess > NOTABLE_PAUSE_SECONDS and excess > (_PAUSE_FACTOR - 1.0) * expected:
            found.append(Pause(before.wall_time_seconds, excess, before.step, is_switch=False))
    return [*found, switch] if switch else found


def clock_without(rows: Sequence[LogRow], found: Sequence[Pause]) -> Clock:
    """Training time at each row: wall time since the first one, without the pauses."""
    start = rows[0].wall_time_seconds
    walls = [row.wall_time_seconds for row in rows]
    seconds = [wall - start for wall in walls]
    for pause in found:
        began = max(start, pause.began_at_seconds)
        seconds = [
            trained - max(min(wall, pause.end_seconds) - began, 0.0)
            for trained, wall in zip(seconds, walls, strict=True)
        ]
    # Differences of moments have rounding errors.
    return Clock([row.step for row in rows], [max(trained, 0.0) for trained in seconds])


def switch_seconds(clock: Clock, phases: Phases, rows: Sequence[LogRow]) -> float:
    """Training time at the switch, by the clock; the rows of the finest log say how fast steps are.

    Between two entries of the clock the protocols share the time as their usual speeds say.
    """
    switch_step = phases.switch_step or 0
    before, after = clock.around(switch_step)
    start, end = clock.steps[before], clock.steps[after]
    is_asynchronous = phases.first_worker_steps < phases.second_worker_steps
    if is_asynchronous and switch_step < end <= switch_step + phases.slack_steps:
        return clock.at(end)  # the steps in flight at the switch were asynchronous ones
    first, second = phases.speeds(rows)
    if not start < switch_step < end or not first or not second:
        return clock.at(switch_step)
    in_first, in_second = _split(start, end, switch_step)
    part = in_first * first / (in_first * first + in_second * second)
    return clock.at(start) + part * (clock.at(end) - clock.at(start))


def _split(start: int, end: int, switch_step: int | None) -> tuple[int, int]:
    """Steps of an interval before and beyond the switch."""
    if switch_step is None:
        return end - start, 0
    in_first = max(min(end, switch_step) - start, 0)
    return in_first, end - start - in_first


def _is_around(start: int, end: int, phases: Phases) -> bool:
    if not phases.switch_step:
        return False
    switch_step, slack = phases.switch_step, phases.slack_steps
    return end >= switch_step - slack and start <= switch_step + slack
