"""Searches replayed on recorded runs, thousands of them in seconds.

What a search would have been told and would have paid follows from the recorded curves: a run that
is stopped costs the time up to its stop, and a fork costs what comes after it. `trainers/replay.py`
does the same for a real search, one run at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from syncswitch.searcher.strategies.base import Decided, NextTrial, Strategy
from syncswitch.searcher.strategies.early_stopping import StopRule, may_stop
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.strategies.planner import decision_after
from syncswitch.storage.metrics import converged_accuracy
from syncswitch.trainers.replay import RecordedRun


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A recorded run, and what it would be if it were stopped.

    Attributes:
        accuracy: Its converged accuracy.
        diverged: Whether it diverged.
        seconds: Time of the whole run; 0 if nobody recorded how soon it diverged.
        first_seconds: The part of this time in the first protocol.
        plateau_accuracy: Accuracy at the evaluation where it may be stopped; None if it may not be.
        stopped_seconds: Time up to there.
    """

    accuracy: float
    diverged: bool
    seconds: float
    first_seconds: float
    plateau_accuracy: float | None = None
    stopped_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedSearch:
    """The course of one replayed search.

    Attributes:
        switch_percent: Its answer.
        seconds: Training time of all its runs.
        runs: Number of its runs.
        confidence: The strategy's confidence in the answer; None if it does not say.
        whole_percents: Switch point of each run that was made to its end without diverging.
        kept_share: See `Decided`.
    """

    switch_percent: float
    seconds: float
    runs: int
    confidence: float | None = None
    whole_percents: tuple[float, ...] = ()
    kept_share: float | None = None


def played_run(run: RecordedRun, stop: StopRule | None) -> PlayedRun:
    """Returns a recorded run as a simulation needs it."""
    known_at = None
    if stop is not None and not run.diverged:
        known_at = stop.settled_after(run.evaluations, run.switch_worker_step)
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


def search_with(strategy: Strategy, run_at: RunAt) -> SimulatedSearch:
    """Lets a strategy search.

    A search that unlucky draws lead to a switch point without a recorded run ends there, with what
    it has accepted so far: its answer is wrong anyway.
    """
    ledger = Ledger(strategy)
    while isinstance(decision := decision_after(strategy, ledger.observations()), NextTrial):
        for _ in range(decision.repeats):
            replicate = ledger.made(decision.switch_percent)
            run = run_at(decision.switch_percent, replicate)
            known = ledger.observations()
            if run is None:
                return ledger.ended_with(strategy.progress(known).upper_percent)
            ledger.finish(ledger.start(decision.switch_percent, replicate, run, known))
            if run.diverged:
                break
    assert isinstance(decision, Decided)  # nothing is in flight, so nothing is waited for
    return replace(
        ledger.ended_with(decision.switch_percent, decision.promise.confidence),
        kept_share=decision.promise.kept_share,
    )


class Ledger:
    """The runs of one replayed search: what they measured and cost, and the prefixes they share."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._observations: list[Observation] = []
        self._made: dict[float, int] = defaultdict(int)
        self._prefixes: dict[int, float] = defaultdict(float)
        self._paid_seconds = 0.0

    def made(self, percent: float) -> int:
        """Returns the number of runs of a switch point."""
        return self._made[percent]

    def observations(self) -> tuple[Observation, ...]:
        """Returns the completed runs, in the order of their ends."""
        return tuple(self._observations)

    def pay(self, seconds: float) -> None:
        """Records the cost of a run that never came to its end."""
        self._paid_seconds += seconds

    def ended_with(self, percent: float, confidence: float | None = None) -> SimulatedSearch:
        """Returns the whole search, given its answer."""
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

    def start(
        self, percent: float, replicate: int, run: PlayedRun, known: Sequence[Observation]
    ) -> Observation:
        """Returns what a recorded run will measure and cost: whole, or to where it may be stopped.

        `known` are the runs that the search knows when this one begins.
        """
        share = percent / self._strategy.highest_percent
        have = self._prefixes[replicate] / percent if percent else 0.0
        inherited = run.first_seconds * min(1.0, have) if self._strategy.share_prefix else 0.0
        is_stopped = may_stop(self._strategy, percent, known) and run.stopped_seconds > inherited
        seconds = run.stopped_seconds if is_stopped else run.seconds
        paid = max(0.0, seconds - inherited)
        plateau = run.plateau_accuracy if is_stopped else None
        return Observation(
            switch_percent=percent,
            trial_number=len(self._observations),
            accuracy=run.accuracy if plateau is None else plateau,
            diverged=run.diverged,
            replicate=replicate,
            stopped_early=is_stopped,
            plateau_accuracy=None if is_stopped else run.plateau_accuracy,
            cost=_cost(run, share, paid, 100 * _reached(run, share, seconds)),
        )

    def finish(self, run: Observation) -> None:
        """Records a run that came to its end."""
        assert run.cost is not None  # each that was started has one
        self._made[run.switch_percent] += 1
        if self._strategy.share_prefix:
            reached = min(run.switch_percent, run.cost.reached_percent)
            self._prefixes[run.replicate] = max(self._prefixes[run.replicate], reached)
        self._paid_seconds += run.cost.paid_seconds
        self._observations.append(run)


def _reached(run: PlayedRun, share: float, seconds: float) -> float:
    """Returns the share of W that is done after some seconds."""
    if seconds >= run.seconds:
        return 1.0
    if seconds <= run.first_seconds:
        return share * seconds / run.first_seconds
    second = (seconds - run.first_seconds) / (run.seconds - run.first_seconds)
    return share + (1 - share) * second


def _cost(run: PlayedRun, share: float, paid_seconds: float, reached_percent: float) -> TrialCost:
    if run.diverged:
        return TrialCost(paid_seconds, None, None)
    second_seconds = run.seconds - run.first_seconds
    return TrialCost(
        paid_seconds,
        run.first_seconds / share if share else None,
        second_seconds / (1 - share) if share < 1 else None,
        reached_percent,
    )
