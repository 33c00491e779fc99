"""Forecasts of what a search costs, from the times of two trainings."""

from __future__ import annotations

import functools
import math
import statistics
from dataclasses import dataclass

import numpy as np

from syncswitch.searcher.simulation.simulator import PlayedRun, search_with
from syncswitch.searcher.strategies.base import USUAL_THRESHOLD, Strategy
from syncswitch.storage.errors import UserError

# Target of a job without a known one; only differences from it count.
_TARGET = 0.5
# A loss above any threshold.
_HOPELESS_LOSS = 2.0
# Generated curves, in beta: the loss per halving below the answer, and the noise.
_SLOPE = 3.0
_STANDARD_DEVIATION = 0.5
_SEARCHES = 20
_STREAM = 20_261


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected cost of a search, given its answer.

    Attributes:
        switch_percent: The answer.
        runs: Mean number of runs.
        search_cost: Cost in trainings with the first protocol alone.
        amortized_recurrences: Number of trainings with the policy that pay the search back.
        speed_up: Time of the first protocol alone over that of a training with the policy.
    """

    switch_percent: float
    runs: float
    search_cost: float
    amortized_recurrences: float
    speed_up: float


def forecast(strategy: Strategy, first_seconds: float, second_seconds: float) -> list[Forecast]:
    """Returns the cost of a search for each answer that halving leads to, the earliest switch last.

    A run at s % is assumed to need s % of the time of the first protocol alone, and the time of the
    second for the rest; none ends early.

    A strategy with a fixed number of repeats is assumed to have neither luck nor bad luck. Others
    make as many runs as the noise of accuracies demands, so 20 searches are played on generated
    accuracies, and runs and costs are their means. From the answer on nothing is lost, every
    halving below it costs 3 beta, and runs differ with a standard deviation of beta / 2.

    Raises UserError if a time is not above 0.
    """
    for name, value in (("first", first_seconds), ("second", second_seconds)):
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"the training time with the {name} protocol is {value}: give seconds")
    knees = [strategy.highest_percent / 2**halvings for halvings in range(strategy.settings + 1)]
    return [
        _foreseen(strategy, _ImaginedJob(strategy, knee, first_seconds, second_seconds))
        for knee in knees
    ]


@dataclass(frozen=True, slots=True)
class _ImaginedJob:
    """A job whose curve has its knee at the answer; each of its methods makes a run."""

    strategy: Strategy
    knee_percent: float
    first_seconds: float
    second_seconds: float

    def seconds(self, percent: float) -> float:
        share = percent / self.strategy.highest_percent
        return share * self.first_seconds + (1 - share) * self.second_seconds

    def run_without_luck(self, percent: float, _: int) -> PlayedRun:
        return self._run(percent, 0.0 if percent >= self.knee_percent else _HOPELESS_LOSS)

    def run_at(self, percent: float, replicate: int, *, search: int) -> PlayedRun:
        """Returns a generated run of the search with this number."""
        chance = np.random.default_rng([_STREAM, search, round(percent * 1e6), replicate])
        below = max(0.0, math.log2(self.knee_percent / percent))
        noise = _STANDARD_DEVIATION * float(chance.standard_normal())
        # A measured threshold fits any scale of the noise.
        scale = self.strategy.threshold or USUAL_THRESHOLD
        return self._run(percent, scale * (_SLOPE * below + noise))

    def _run(self, percent: float, loss: float) -> PlayedRun:
        target = _TARGET if self.strategy.target_accuracy is None else self.strategy.target_accuracy
        first_seconds = percent / self.strategy.highest_percent * self.first_seconds
        return PlayedRun(target - loss, False, self.seconds(percent), first_seconds)


def _foreseen(strategy: Strategy, job: _ImaginedJob) -> Forecast:
    if strategy.repeats is not None:
        searches = [search_with(strategy, job.run_without_luck)]
    else:
        runs_of = [functools.partial(job.run_at, search=number) for number in range(_SEARCHES)]
        searches = [search_with(strategy, run_at) for run_at in runs_of]
    paid = statistics.fmean(search.seconds for search in searches) / job.first_seconds
    policy = job.seconds(job.knee_percent) / job.first_seconds
    return Forecast(
        switch_percent=job.knee_percent,
        runs=statistics.fmean(search.runs for search in searches),
        search_cost=paid,
        amortized_recurrences=ratio_or_infinity(paid, 1 - policy),
        speed_up=1 / policy,
    )


def ratio_or_infinity(value: float, unit: float) -> float:
    """Returns the quotient; infinite if the unit is not above 0."""
    return value / unit if unit > 0 else math.inf
