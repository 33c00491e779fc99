"""Which second phase a run takes: each is tried at the switch, and the fastest goes on; pure.

The steps of a trial are steps of the training like any other. How long a step takes in the first
protocol is known from the steps before the switch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from syncswitch.storage.records.job import Protocols, protocol_text
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialSpec
from syncswitch.trainers.job.schedule import Segment
from syncswitch.trainers.protocols import Exchange, choose_protocol

_LEAST_SECONDS = 0.3
"""How long a trial should take, so that one hiccup of a machine does not decide."""

_MOST_OF_JOB = 0.02
"""The share of the worker-steps that a trial may have for that."""

_MOST_IN_ALL = 0.15
"""The share of the worker-steps that all trials may have; what needs more is left out."""

_LESS_USUAL = 0.9
"""The share of the first candidate's time that another one needs to be chosen instead.

What it costs in accuracy is less certain: momenta of a rate that is too hot bear no average.
"""

_GOOD_ENOUGH = 0.5
"""The share of the first protocol's time with which a candidate ends the trials: all are a risk."""

_PUSH_STEPS = 8
"""Steps of each worker in a trial where every gradient is pushed, at least."""

_LOCAL_PERIODS = 2
"""Periods of a trial of local SGD, at least."""


@dataclass
class _Trial:
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


def fitting(
    candidates: Sequence[Protocols], workers: int, total_worker_steps: int
) -> tuple[Protocols, ...]:
    """The first ones of the candidates for whose trials a job has room."""
    kept, in_all = [], 0
    for protocols in candidates:
        in_all += _least_trial(protocols, workers).end
        if in_all > _MOST_IN_ALL * total_worker_steps:
            break
        kept.append(protocols)
    return tuple(kept)


def _least_trial(protocols: Protocols, workers: int) -> _Trial:
    choice = choose_protocol(protocols.second_protocol)
    unit = workers * choice.period_steps
    if choice.exchange is Exchange.REPLICA:
        return _Trial(unit, unit, _LOCAL_PERIODS * unit)
    return _Trial(unit, 2 * unit, _PUSH_STEPS * unit)


def _pace(phases: Sequence[PhaseRecord], evaluations: Sequence[Evaluation]) -> float | None:
    """The seconds of a worker-step of the first phase; None without one.

    Those before its first test are left out, if there is one: in them functions are compiled.
    """
    if not phases:
        return None
    first = phases[0]
    steps, seconds = first.end_worker_step - first.start_worker_step, first.seconds
    for test in evaluations[:1]:
        if first.start_worker_step < test.worker_step < first.end_worker_step:
            steps = first.end_worker_step - test.worker_step
            seconds -= test.elapsed_seconds
    return max(0.0, seconds) / steps if steps else None


@dataclass
class SecondPhase:
    """The second phase of one run, which tries its `candidates` unless there are none.

    Attributes:
        chosen: The protocol of the rest; None while nothing is chosen.
        reason: What was chosen and why, with figures; None without trials.
        first_step_seconds: The seconds of a worker-step before the switch; None without any.
    """

    spec: TrialSpec
    chosen: str | None = None
    reason: str | None = None
    first_step_seconds: float | None = None
    _trials: dict[str, _Trial] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether the run has yet to choose."""
        return bool(self.spec.candidates) and self.chosen is None

    @property
    def is_first(self) -> bool:
        """Whether the run stays with its first protocol, as no other one is faster."""
        return self.chosen == self.spec.identity.first_protocol

    @property
    def protocols(self) -> Protocols:
        """The protocols of the run, with the second one that was chosen."""
        own = self.spec.identity.protocols
        return next(
            (one for one in self.spec.candidates if one.second_protocol == self.chosen), own
        )

    def of(
        self, segment: Segment, phases: Sequence[PhaseRecord], evaluations: Sequence[Evaluation]
    ) -> Segment:
        """The segment that follows the switch, which may be a trial.

        `phases` and `evaluations` are those of the run so far.
        """
        if self.chosen is None and not self._trials:
            self.first_step_seconds = _pace(phases, evaluations)
            self._plan(segment)
        if self.chosen is None:
            name, trial = self._next_trial()
            if trial is not None:
                end = segment.start_worker_step + trial.left
                if end >= segment.end_worker_step:
                    return replace(segment, protocol=name, is_trial=True)
                return Segment(name, segment.start_worker_step, end, is_trial=True)
            self._choose()
        return replace(segment, protocol=self.chosen or segment.protocol)

    def _next_trial(self) -> tuple[str, _Trial | None]:
        """The trial that is not over, and None once nothing more is worth a trial."""
        for name, trial in self._trials.items():
            if not trial.is_over:
                return name, trial
            if trial.step_seconds < _GOOD_ENOUGH * (self.first_step_seconds or 0.0):
                break
        return "", None

    def add(self, protocol: str, steps: int, seconds: float) -> None:
        """Counts a segment after the switch."""
        if self.chosen is None and (trial := self._trials.get(protocol)) is not None:
            trial.add(steps, seconds)

    def history(self) -> dict[str, Any]:
        """What is known so far, as JSON."""
        trials = {
            name: [one.unit, one.warm_steps, one.steps, one.done, one.seconds]
            for name, one in self._trials.items()
        }
        return {
            "chosen": self.chosen,
            "reason": self.reason,
            "first_step_seconds": self.first_step_seconds,
            "trials": trials,
        }

    def remember(self, history: Mapping[str, Any]) -> None:
        """Restores a history."""
        self.chosen, self.reason = history["chosen"], history["reason"]
        self.first_step_seconds = history["first_step_seconds"]
        self._trials = {name: _Trial(*values) for name, values in history["trials"].items()}

    def _plan(self, segment: Segment) -> None:
        """Plans the trials; none where there is no room for them, or nothing to compare with."""
        identity, step_seconds = self.spec.identity, self.first_step_seconds
        workers, total = identity.workers, identity.total_worker_steps
        for protocols in fitting(self.spec.candidates, workers, total):
            self._trials[protocols.second_protocol] = _least_trial(protocols, workers)
        if step_seconds is None and len(self._trials) < 2:
            self._trials.clear()
        if not self._trials:
            self.chosen = segment.protocol
            return
        wanted = min(_LEAST_SECONDS / step_seconds if step_seconds else 0.0, _MOST_OF_JOB * total)
        room = _MOST_IN_ALL * total - sum(one.end for one in self._trials.values())
        for trial in self._trials.values():
            more = min(wanted - trial.steps, room / len(self._trials))
            trial.steps += trial.unit * max(0, math.floor(more / trial.unit))

    def _choose(self) -> None:
        first = self.spec.identity.first_protocol
        paces = {name: one.step_seconds for name, one in self._trials.items() if one.is_over}
        if self.first_step_seconds is not None:
            paces[first] = self.first_step_seconds
        usual = next(iter(self._trials))
        self.chosen = min(paces, key=lambda name: paces[name])
        why = "the fastest here"
        if self.is_first:
            why = "as nothing else is faster here"
        elif (
            self.chosen != usual
            and paces[usual] < paces.get(first, math.inf)
            and paces[self.chosen] >= _LESS_USUAL * paces[usual]
        ):
            why, self.chosen = "as nothing else is a tenth faster here", usual
        times = (f"{pace:.3g} s in {protocol_text(name)}" for name, pace in paces.items())
        self.reason = (
            f"{protocol_text(self.chosen)} does the rest, {why}: a worker-step takes"
            f" {', '.join(times)}"
        )
