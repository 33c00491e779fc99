"""Searches replayed on recorded runs, thousands of them in seconds.

What a search would have been told and what it would have paid follow from the recorded curves: a
run that is stopped costs the time up to there, a fork costs what comes after. `trainers/replay.py`
does the same for a real search, one run at a time.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from syncswitch.searcher.decision import Decided, Decision, NextRun, Observation, Rule, RunCost
from syncswitch.searcher.stopping import StopRule, may_stop
from syncswitch.storage.metrics import converged_accuracy
from syncswitch.trainers.recording import RecordedRun

__all__ = ["PlayedRun", "SimulatedSearch", "played_run", "search_with"]


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A recorded run, and what is left of it when it is stopped.

    Attributes:
        accuracy: Converged accuracy of the whole run.
        diverged: Whether the training blew up.
        seconds: Of the whole run; 0 where nobody recorded how soon it diverged.
        first_seconds: Of the first protocol in it.
        plateau_accuracy: At the evaluation where it may be stopped; None where it may not.
        stopped_seconds: Up to there.
    """

    accuracy: float
    diverged: bool
    seconds: float
    first_seconds: float
    plateau_accuracy: float | None = None
    stopped_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedSearch:
    """How one replayed search went.

    Attributes:
        switch_percent: Its answer.
        seconds: Training time of all its runs.
        runs: How many they were.
        confidence: Of the answer, as the rule said; None where it does not say.
        whole_percents: Setting of each run that was made to its end without diverging.
    """

    switch_percent: float
    seconds: float
    runs: int
    confidence: float | None = None
    whole_percents: tuple[float, ...] = ()


def played_run(run: RecordedRun, stop: StopRule | None) -> PlayedRun:
    """A recorded run as a simulation needs it."""
    known_at = None
    if stop is not None and not run.diverged:
        known_at = stop.known_at(run.evaluations, run.switch_worker_step)
    if known_at is None:
        return PlayedRun(run.accuracy, run.diverged, run.training_seconds, run.first_seconds)
    until = run.evaluations[:known_at]
    return PlayedRun(
        run.accuracy,
        run.diverged,
        run.training_seconds,
        run.first_seconds,
        converged_accuracy(until),
        min(until[-1].elapsed_seconds, run.training_seconds),
    )


RunAt = Callable[[float, int], PlayedRun | None]


def search_with(rule: Rule, run_at: RunAt) -> SimulatedSearch:
    """Lets a rule search.

    A search that unlucky draws lead to a setting without a recorded run ends there, with what it
    has accepted so far: its answer is wrong anyway.

    Args:
        rule: Decides; it is asked as in a real search.
        run_at: A run at a setting and of a replicate; None where nobody recorded one.
    """
    ledger = _Ledger(rule)
    while isinstance(decision := _decision(rule, ledger.observations()), NextRun):
        for _ in range(decision.repeats):
            run = run_at(decision.switch_percent, ledger.made(decision.switch_percent))
            if run is None:
                answer = rule.progress(ledger.observations()).upper_percent
                return ledger.ended_with(answer)
            ledger.add(decision.switch_percent, run)
            if run.diverged:
                break
    assert isinstance(decision, Decided)  # nothing is in flight, so nothing is waited for
    return ledger.ended_with(decision.switch_percent, decision.confidence)


# Searches on few recorded runs often begin alike, and a rule is a pure function.
@functools.lru_cache(maxsize=20_000)
def _decision(rule: Rule, observations: tuple[Observation, ...]) -> Decision:
    return rule.decide(observations)


class _Ledger:
    """The runs of one search: what was measured, what was paid, and how far each replicate is."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._observations: list[Observation] = []
        self._made: dict[float, int] = defaultdict(int)
        self._prefixes: dict[int, float] = defaultdict(float)
        self._paid_seconds = 0.0

    def made(self, percent: float) -> int:
        return self._made[percent]

    def observations(self) -> tuple[Observation, ...]:
        return tuple(self._observations)

    def ended_with(self, percent: float, confidence: float | None = None) -> SimulatedSearch:
        return SimulatedSearch(
            switch_percent=percent,
            seconds=self._paid_seconds,
            runs=len(self._observations),
            confidence=confidence,
            whole_percents=tuple(
                run.switch_percent
                for run in self._observations
                if not (run.stopped_early or run.diverged)
            ),
        )

    def add(self, percent: float, run: PlayedRun) -> None:
        """Plays a run to its end, or to where it may be stopped."""
        replicate = self._made[percent]
        self._made[percent] += 1
        share = percent / self._rule.highest_percent
        have = self._prefixes[replicate] / percent if percent else 0.0
        inherited = run.first_seconds * min(1.0, have) if self._rule.share_prefix else 0.0
        is_stopped = (
            may_stop(self._rule, percent, self._observations) and run.stopped_seconds > inherited
        )
        seconds = run.stopped_seconds if is_stopped else run.seconds
        paid = max(0.0, seconds - inherited)
        reached = _reached(run, share, seconds)
        if self._rule.share_prefix:
            self._prefixes[replicate] = max(self._prefixes[replicate], min(percent, 100 * reached))
        self._paid_seconds += paid
        known = run.plateau_accuracy if is_stopped else None
        self._observations.append(
            Observation(
                switch_percent=percent,
                accuracy=run.accuracy if known is None else known,
                diverged=run.diverged,
                trial_number=len(self._observations),
                replicate=replicate,
                stopped_early=is_stopped,
                plateau_accuracy=None if is_stopped else run.plateau_accuracy,
                cost=_cost(run, share, paid, 100 * reached),
            )
        )


def _reached(run: PlayedRun, share: float, seconds: float) -> float:
    """Share of W that is done after so many seconds."""
    if seconds >= run.seconds:
        return 1.0
    if seconds <= run.first_seconds:
        return share * seconds / run.first_seconds
    second = (seconds - run.first_seconds) / (run.seconds - run.first_seconds)
    return share + (1 - share) * second


def _cost(run: PlayedRun, share: float, paid_seconds: float, reached_percent: float) -> RunCost:
    if run.diverged:
        return RunCost(paid_seconds, None, None)
    second_seconds = run.seconds - run.first_seconds
    return RunCost(
        paid_seconds,
        run.first_seconds / share if share else None,
        second_seconds / (1 - share) if share < 1 else None,
        reached_percent,
    )
