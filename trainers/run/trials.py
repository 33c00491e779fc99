"""How long the steps of a protocol take: those of a trial, and of a phase that goes on; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from syncswitch.storage.records.job import Protocols
from syncswitch.trainers.protocols import Exchange, choose_protocol

LEAST_SECONDS = 0.3
"""How long a trial should take, so that one hiccup of a machine does not decide."""

MOST_IN_ALL = 0.15
"""The share of the worker-steps that all trials may have; what needs more is left out."""

_PUSH_STEPS = 8
"""Steps of each worker in a trial where every gradient is pushed, at least."""

_LOCAL_PERIODS = 2
"""Periods of a trial of local SGD, at least."""

LATER_STEPS = 4
"""Steps of each worker by which the pace of a phase that goes on is judged, at least."""


@dataclass
class Trial:
    """The steps of a candidate; in the first ones its functions are compiled.

    Both are multiples of `unit`: a step of each worker, or a period.
    """

    unit: int
    warm_steps: int
    steps: int
    done: int = 0
    seconds: float = 0.0  # of the steps that are timed

    @property
    def end(self) -> int:
        return self.warm_steps + self.steps

    @property
    def is_over(self) -> bool:
        return self.done >= self.end

    @property
    def left(self) -> int:
        return (self.warm_steps if self.done < self.warm_steps else self.end) - self.done

    @property
    def step_seconds(self) -> float:
        return self.seconds / max(1, self.done - self.warm_steps)

    def add(self, steps: int, seconds: float) -> None:
        if self.done >= self.warm_steps:
            self.seconds += seconds
        self.done += steps

    def lengthen(self, steps: float) -> None:
        """Adds as many whole units as there is room for in so many steps."""
        self.steps += self.unit * max(0, math.floor(steps / self.unit))


def fitting(
    candidates: Sequence[Protocols], workers: int, total_worker_steps: int
) -> tuple[Protocols, ...]:
    """The first ones of the candidates for whose trials a job has room."""
    kept, in_all = [], 0
    for protocols in candidates:
        in_all += least_trial(protocols.second_protocol, workers).end
        if in_all > MOST_IN_ALL * total_worker_steps:
            break
        kept.append(protocols)
    return tuple(kept)


def least_trial(protocol: str, workers: int) -> Trial:
    """The shortest trial of a second protocol."""
    choice = choose_protocol(protocol)
    unit = workers * choice.period_steps
    if choice.exchange is Exchange.REPLICA:
        return Trial(unit, unit, _LOCAL_PERIODS * unit)
    return Trial(unit, 2 * unit, _PUSH_STEPS * unit)


@dataclass
class Watch:
    """The pace of the chosen phase, in stretches of so many worker-steps and seconds."""

    stretch_steps: int
    warm_steps: int  # left, which do not count
    steps: int = 0
    seconds: float = 0.0
    slow: list[float] = field(default_factory=list)  # stretches in a row, seconds of a worker-step

    def add(self, steps: int, seconds: float) -> float | None:
        """Counts steps; the pace of a stretch that they complete."""
        if self.warm_steps > 0:
            self.warm_steps -= steps
            return None
        self.steps += steps
        self.seconds += seconds
        if self.steps < self.stretch_steps or self.seconds < LEAST_SECONDS:
            return None
        pace, self.steps, self.seconds = self.seconds / self.steps, 0, 0.0
        return pace


def is_replica(protocol: str) -> bool:
    """Whether workers train replicas of their own, whose means are taken now and then."""
    return choose_protocol(protocol).exchange is Exchange.REPLICA
