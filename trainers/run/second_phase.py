"""Which second phase a run takes, and whether it is left again for a faster one; pure.

A run with candidates tries them at its switch, and the fastest goes on. How long a step takes in
the first protocol is known from the steps before the switch. A second phase that has become slower
than that for some time is compared once more, with what the others take now. The steps of a trial
are steps of the training like any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.job import Protocols, protocol_text
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.schedule import Segment
from syncswitch.trainers.protocols import choose_protocol
from syncswitch.trainers.run.fallback import Following, Switch, following
from syncswitch.trainers.run.step_times import LastSteps, StepTimes
from syncswitch.trainers.run.trials import (
    LATER_STEPS,
    LEAST_SECONDS,
    MOST_IN_ALL,
    Trial,
    Watch,
    fitting,
    is_replica,
    least_trial,
)

_MOST_OF_JOB = 0.02
"""The share of the worker-steps that a trial may have for that."""

_LESS_USUAL = 0.9
"""The share of the first candidate's time that another one needs to be chosen instead.

What it costs in accuracy is less certain: momenta of a rate that is too hot tolerate no average.
"""

_GOOD_ENOUGH = 0.5
"""The share of the first protocol's time with which a candidate ends the trials: all are a risk."""

_SENDING = 4.0
"""Times as long as to compute has a worker to send, for what sends seldom to be tried first."""

_IN_A_ROW = 3
"""So often it has to be too slow in a row; twice as often after each comparison."""

_SLOWER = 1.05
"""Times another pace from which on a phase is slower."""


@dataclass
class SecondPhase:
    """The second phase of one run.

    Attributes:
        chosen: The protocol of the rest; None while nothing is chosen.
        reason: What was chosen last and why, with figures; None without trials.
        first_step_seconds: The seconds of a worker-step in the first protocol, when it was last
            used; None without any.
        first_times: What its steps took then; None if that is not known.
        second: The second protocol that was chosen last; None before.
        looks: How often the second phase was compared again.
        step_seconds: The seconds of a worker-step by protocol, for those that were timed.
        last_steps: The steps of the segment under way.
    """

    spec: TrialSpec
    chosen: str | None = None
    reason: str | None = None
    first_step_seconds: float | None = None
    first_times: StepTimes | None = None
    second: str | None = None
    looks: int = 0
    step_seconds: dict[str, float] = field(default_factory=dict)
    last_steps: LastSteps = field(init=False)
    _trials: dict[str, Trial] = field(default_factory=dict)
    _again: dict[str, Trial] = field(default_factory=dict)
    _slow_seconds: float = 0.0  # of a worker-step, in the phase that is compared again
    _trial_steps: int = 0
    _watch: Watch | None = None

    def __post_init__(self) -> None:
        workers = self.spec.identity.workers
        self.last_steps = LastSteps(workers)
        self._first_trial = _first_trial(workers)

    @property
    def is_on(self) -> bool:
        """Whether the run may choose, or leave what was chosen."""
        return bool(self.spec.candidates or self.spec.fallbacks) or self.spec.leaves_slow

    @property
    def is_open(self) -> bool:
        """Whether the run has yet to choose."""
        return self.is_on and (self.chosen is None or bool(self._again))

    @property
    def is_first(self) -> bool:
        """Whether the first protocol does the rest."""
        return self.chosen == self.spec.identity.first_protocol

    @property
    def is_first_alone(self) -> bool:
        """Whether no second phase was chosen at all, as none is faster."""
        return self.is_first and self.second is None

    @property
    def protocols(self) -> Protocols:
        """The protocols of the run, with the second one that was chosen."""
        return self.protocols_with(self.second)

    def protocols_with(self, second: str | None) -> Protocols:
        """Those with this second protocol; those of the job if the run may not take it."""
        every = (*self.spec.candidates, *self.spec.fallbacks)
        own = self.spec.identity.protocols
        return next((one for one in every if one.second_protocol == second), own)

    @property
    def _first(self) -> str:
        return self.spec.identity.first_protocol

    def of(self, segment: Segment) -> Segment:
        """The segment that follows the switch, which may be a trial."""
        if self.chosen is None and not self._trials:
            if self._first_trial.is_over:
                self.first_step_seconds = self._first_trial.step_seconds
            self.first_times = self.last_steps.times()
            self._plan(segment)
        name, trial = self._due()
        self.last_steps.clear()
        if trial is None:
            self._begin_watch()
            return replace(segment, protocol=self.chosen or segment.protocol)
        if self.chosen is None and name == next(iter(self._trials)):
            return replace(segment, protocol=name)  # it goes on if nothing else may be faster
        is_averaged = is_replica(name)
        end = segment.start_worker_step + trial.left
        if end >= segment.end_worker_step:
            return replace(segment, protocol=name, is_trial=is_averaged)
        return Segment(name, segment.start_worker_step, end, is_trial=is_averaged)

    def _due(self) -> tuple[str, Trial | None]:
        """The trial that is due, and None once a protocol is chosen."""
        if self._again:
            for name, trial in self._again.items():
                if not trial.is_over:
                    return name, trial
            self._choose_again()
        elif self.chosen is None:
            name, following = self._next_trial()
            if following is not None:
                return name, following
            self._choose()
        return "", None

    def add(self, protocol: str, steps: int, seconds: float) -> bool:
        """Counts steps; whether the segment is to end with them."""
        if self.chosen is None and not self._trials:
            self._first_trial.add(steps, seconds)
            return False
        if self._again:
            if (trial := self._again.get(protocol)) is not None:
                trial.add(steps, seconds)
            return False
        if self.chosen is None:
            if (trial := self._trials.get(protocol)) is not None:
                trial.add(steps, seconds)
            is_whole = trial is not None and protocol == next(iter(self._trials))
            return is_whole and self._ends(protocol)
        if protocol != self.chosen or self.is_first or self._watch is None:
            return False
        pace = self._watch.add(steps, seconds)
        return pace is not None and self._is_too_slow(pace)

    def time_failed(self, step_seconds: float) -> None:
        """Notes what a worker-step took in the second phase that has just failed."""
        if self.chosen is not None and not self.is_first:
            self.step_seconds[self.chosen] = step_seconds

    def following(
        self, failed: Sequence[FailedSwitch], percent: float, later_percent: float | None
    ) -> Following | None:
        """What follows a switch at this percent that fails, after those that have failed before.

        In any case the run would switch again at `later_percent`, if any: so it does for None.
        """
        first = self.step_seconds.get(self._first)
        if not self.spec.fallbacks or self.chosen is None or self.is_first or not first:
            return None
        switches = [
            *(
                Switch(self.protocols_with(one.second_protocol), one.switch_percent)
                for one in failed
            ),
            Switch(self.protocols, percent),
        ]
        paces = {}
        for protocols in dict.fromkeys((*self.spec.fallbacks, switches[-1].protocols)):
            seconds = self._expected_seconds(protocols.second_protocol)
            if seconds is not None:
                paces[protocols] = seconds / first
        return following(switches, later_percent, paces)

    def _expected_seconds(self, name: str) -> float | None:
        """Of a worker-step in a second protocol: as it was timed, or by what BSP's steps took."""
        if name in self.step_seconds or self.first_times is None:
            return self.step_seconds.get(name)
        return self.first_times.expected(choose_protocol(name).period_steps)

    def restart(self, after: Following | None = None) -> None:
        """Forgets what it compared, as the run goes back to the switch, and takes what follows."""
        self.looks, self._watch = 0, None
        self._again.clear()
        if after is None:
            return
        name = self._first if after.switch is None else after.switch.protocols.second_protocol
        if name == self.chosen:
            return
        failed, does = protocol_text(self.chosen or ""), "does the rest"
        if after.switch is not None:
            self.chosen = self.second = name
            does += f" from {after.switch.percent:g} % on"
        self.reason = f"{protocol_text(name)} {does}, as {failed} failed: {self._expected(after)}"

    def _expected(self, after: Following) -> str:
        first = protocol_text(self._first)
        if after.switch is None:
            return "no other switch is expected to take less time"
        return (
            f"that is expected to take {after.share:.2f} of a whole run in {first}, where {first}"
            f" would take {after.first_share:.2f}"
        )

    def history(self) -> dict[str, Any]:
        """What is known so far, as JSON."""
        return {
            "candidates": [asdict(one) for one in self.spec.candidates],
            "chosen": self.chosen,
            "reason": self.reason,
            "first_step_seconds": self.first_step_seconds,
            "first_trial": _written(self._first_trial),
            "first_times": None if self.first_times is None else asdict(self.first_times),
            "second": self.second,
            "looks": self.looks,
            "step_seconds": self.step_seconds,
            "fallbacks": [asdict(one) for one in self.spec.fallbacks],
            "trials": {name: _written(one) for name, one in self._trials.items()},
            "again": {name: _written(one) for name, one in self._again.items()},
            "slow_seconds": self._slow_seconds,
            "trial_steps": self._trial_steps,
        }

    def remember(self, history: Mapping[str, Any]) -> None:
        """Restores a history; an older version had no later comparisons."""
        self.chosen, self.reason = history["chosen"], history["reason"]
        self.first_step_seconds = history["first_step_seconds"]
        if (times := history.get("first_times")) is not None:
            self.first_times = StepTimes(tuple(times["compute"]), times["exchange"])
        self.second = history.get("second", None if self.is_first else self.chosen)
        self.looks = history.get("looks", 0)
        self.step_seconds = dict(history.get("step_seconds", {}))
        if "first_trial" in history:
            self._first_trial = Trial(*history["first_trial"])
        self._trials = {name: Trial(*values) for name, values in history["trials"].items()}
        again = history.get("again", {})
        self._again = {name: Trial(*values) for name, values in again.items()}
        self._slow_seconds = history.get("slow_seconds", 0.0)
        self._trial_steps = history.get("trial_steps", 0)

    @property
    def _usual(self) -> str:
        """The candidate that is taken where others are hardly faster."""
        return self.spec.candidates[0].second_protocol

    def _plan(self, segment: Segment) -> None:
        """Plans the trials; none where there is no room for them, or nothing to compare with."""
        identity, step_seconds = self.spec.identity, self.first_step_seconds
        if step_seconds is not None:
            self.step_seconds[self._first] = step_seconds
        workers, total = identity.workers, identity.total_worker_steps
        for protocols in fitting(self.spec.candidates, workers, total):
            self._trials[protocols.second_protocol] = least_trial(
                protocols.second_protocol, workers
            )
        if step_seconds is None and len(self._trials) < 2:
            self._trials.clear()
        if self.first_times is not None and self.first_times.exchange > _SENDING * min(
            self.first_times.compute
        ):
            rarely = sorted(self._trials.items(), key=lambda one: not is_replica(one[0]))
            self._trials = dict(rarely)
        if not self._trials:
            self.chosen = self.second = segment.protocol
            return
        wanted = min(LEAST_SECONDS / step_seconds if step_seconds else 0.0, _MOST_OF_JOB * total)
        room = MOST_IN_ALL * total - sum(one.end for one in self._trials.values())
        for trial in self._trials.values():
            trial.lengthen(min(wanted - trial.steps, room / len(self._trials)))

    def _next_trial(self) -> tuple[str, Trial | None]:
        """The trial that is not over, and None once nothing more is worth a trial."""
        for name, trial in self._trials.items():
            if not trial.is_over:
                if self._may_be_fastest(name):
                    return name, trial
            elif trial.step_seconds < _GOOD_ENOUGH * (self.first_step_seconds or 0.0):
                break
        return "", None

    def _may_be_fastest(self, name: str) -> bool:
        """Whether what the workers take to compute leaves it room to be chosen."""
        times, first = self.first_times, self.first_step_seconds
        if times is None or first is None:
            return True
        tried = [one.step_seconds for one in self._trials.values() if one.is_over]
        return times.least < _LESS_USUAL * min([first, *tried])

    def _ends(self, name: str) -> bool:
        """Whether the phase that is begun first is left, once it is timed."""
        if not self._trials[name].is_over:
            return False
        _, following = self._next_trial()
        if following is not None or self._fastest() != name:
            return True
        self._choose()
        self._begin_watch()
        return False

    def _paces(self) -> dict[str, float]:
        """The seconds of a worker-step in what was tried, and in the first protocol."""
        paces = {name: one.step_seconds for name, one in self._trials.items() if one.is_over}
        if self.first_step_seconds is not None:
            paces[self._first] = self.first_step_seconds
        return paces

    def _fastest(self) -> str | None:
        """What is to be chosen of what was tried."""
        paces, usual = self._paces(), self._usual
        if not paces:
            return None
        fastest = min(paces, key=lambda name: paces[name])
        if usual not in paces or fastest in (usual, self._first):
            return fastest
        is_faster = paces[usual] < paces.get(self._first, math.inf)
        is_enough = paces[fastest] < _LESS_USUAL * paces[usual]
        return fastest if is_enough or not is_faster else usual

    def _choose(self) -> None:
        paces = self._paces()
        self.step_seconds |= paces
        self.chosen = self._fastest() or self._usual
        self._trial_steps += sum(one.done for one in self._trials.values())
        if self.is_first:
            why = "as nothing else is faster here"
            if len(paces) < 2:
                why = "as nothing else can be a tenth faster here"
        else:
            self.second = self.chosen
            is_fastest = not paces or paces[self.second or ""] <= min(paces.values())
            why = "the fastest here" if is_fastest else "as nothing else is a tenth faster here"
        self._say("does the rest", why, paces)

    def _say(self, what: str, why: str, paces: Mapping[str, float]) -> None:
        times = ", ".join(f"{pace:.3g} s in {protocol_text(name)}" for name, pace in paces.items())
        self.reason = (
            f"{protocol_text(self.chosen or '')} {what}, {why}: a worker-step takes {times}"
        )
        first = paces.get(self._first)
        if self.first_times is not None and first is not None:
            self.reason += f"; {self.first_times.text(protocol_text(self._first), first)}"

    def _begin_watch(self) -> None:
        if self.chosen is None or self.is_first:
            self._watch = None
            return
        trial = least_trial(self.chosen, self.spec.identity.workers)
        stretch = max(LATER_STEPS * self.spec.identity.workers, trial.unit)
        self._watch = Watch(stretch, trial.warm_steps)

    def _is_too_slow(self, pace: float) -> bool:
        """Whether the chosen phase is to be compared again after a stretch of this pace."""
        watch = self._watch
        assert watch is not None
        if pace <= _SLOWER * self._other_pace():
            watch.slow.clear()
            return False
        watch.slow.append(pace)
        if len(watch.slow) < _IN_A_ROW << self.looks:
            return False
        self._slow_seconds = sum(watch.slow) / len(watch.slow)
        self._again = self._later_trials()
        if not self._again:
            self._watch = None  # no room to make sure
            return False
        self.looks += 1
        return True

    def _other_pace(self) -> float:
        """The seconds of a worker-step in the fastest of the others, as far as is known.

        The first protocol waits for the slowest worker, which may be another one by now.
        """
        first, now = self.first_step_seconds, self.last_steps.times()
        if first is None:
            return math.inf
        if self.first_times is not None and now is not None:
            changed = now.least_in_rounds - self.first_times.least_in_rounds
            first = max(first + changed, now.least_in_rounds)
        tried = (
            one.step_seconds / _LESS_USUAL
            for name, one in self._trials.items()
            if name != self.chosen and one.is_over and not self.looks
        )
        return min([first, *tried])

    def _later_trials(self) -> dict[str, Trial]:
        """What is compared with a phase that is too slow, as far as the job has room for it."""
        identity, now = self.spec.identity, self.last_steps.times()
        workers, total = identity.workers, identity.total_worker_steps
        room = MOST_IN_ALL * total - self._trial_steps
        step_seconds = self.first_step_seconds or self._slow_seconds
        wanted = min(LEAST_SECONDS / step_seconds, _MOST_OF_JOB * total)
        found = {self._first: _first_trial(workers)}
        found[self._first].lengthen(wanted - found[self._first].steps)
        room -= found[self._first].end
        for protocols in self.spec.candidates:
            name = protocols.second_protocol
            trial = least_trial(name, workers)
            least = 0.0 if now is None else _SLOWER * now.least
            if name == self.chosen or least > self._slow_seconds or trial.end > room:
                continue
            found[name] = trial
            room -= trial.end
        return found if room >= 0 else {}

    def _choose_again(self) -> None:
        before, first = self.chosen or "", self._again[self._first]
        paces = {before: self._slow_seconds}
        paces |= {name: one.step_seconds for name, one in self._again.items()}
        self.step_seconds |= paces
        self.first_step_seconds = first.step_seconds
        self.first_times = None  # the last steps may be those of another protocol
        self._trial_steps += sum(one.done for one in self._again.values())
        self._again.clear()
        fastest = min(paces, key=lambda name: paces[name])
        if _SLOWER * paces[fastest] < paces[before]:
            self.chosen = fastest
            if not self.is_first:
                self.second = fastest
            self._say("does the rest", f"as {protocol_text(before)} is slower by now", paces)
        else:
            self._say("goes on", "as nothing else is faster by now", paces)


def _first_trial(workers: int) -> Trial:
    """The steps of the first protocol by which it is timed; before the switch there are more."""
    return Trial(workers, 2 * workers, LATER_STEPS * workers)


def _written(trial: Trial) -> list[float]:
    return [trial.unit, trial.warm_steps, trial.steps, trial.done, trial.seconds]
