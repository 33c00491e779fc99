"""Jobs drawn from a family. What is assumed of them, in accuracy from 0 to 1, with A = 0.92:

- Above a knee (log-uniform in 1.5 to 75 %) nothing is lost; below it every halving of the switch
  point costs 0.7 to 20 beta (log-uniform). Half of the curves are not quite flat above the knee:
  every halving costs 0.03 beta on average (exponential).
- Runs are independent, also those that share their start: normal around the curve, with a standard
  deviation of 0.002 to 0.012 (uniform).
- A training with the second protocol takes 0.1 to 0.9 (uniform) of the time of the first.
- Half of the jobs diverge below a point at 0.1 to 0.9 (uniform) of their knee, always, and show it
  after 0.3 of the second phase.
- A run may be stopped at 2/3 of its second phase (at 100 % of its only one); where it switches
  between 25 and 50 % only at 9/10 of it, and above not at all. It then measures a little less:
  normal with mean 0.0015 and standard deviation 0.001, but never more than the whole run.
- A recurring job knows A as the mean of 5 runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.problems import BASELINE_PERCENT, BETA, halvings
from syncswitch.searcher.simulation.simulator import PlayedRun

TARGET = 0.92
KNOWN_RUNS = 5

_DIVERGED_AFTER = 0.3
# Of the random numbers; each problem draws its own with its number.
_STREAM = 20_260


@dataclass(frozen=True)
class GeneratedProblem:
    """A job of the family; see `Problem` for what is not here.

    Attributes:
        knee_percent: Nothing is lost above it.
        slope: Accuracy lost for every halving of the switch point below.
        bend: The same everywhere, in addition.
        standard_deviation: Of a run's accuracy.
        ratio: Time of a training with the second protocol, in trainings with the first.
        diverges_below_percent: 0 for a job that never diverges.
    """

    number: int
    knee_percent: float
    slope: float
    bend: float
    standard_deviation: float
    ratio: float
    diverges_below_percent: float
    known_accuracy: float = TARGET
    known_runs: int = KNOWN_RUNS
    settings: int = 6
    threshold: float = BETA
    target_accuracy: float = TARGET
    first_seconds: float = 1.0

    @property
    def grid(self) -> tuple[float, ...]:
        """The ends of repeated halving."""
        return halvings(self.settings)

    @property
    def best_percent(self) -> float:
        """Where the curve crosses beta or divergence ends, but not before the grid begins."""
        knee_octaves = math.log2(BASELINE_PERCENT / self.knee_percent)
        if self.bend * knee_octaves > self.threshold:
            octaves = self.threshold / self.bend
        else:
            octaves = (self.threshold + self.slope * knee_octaves) / (self.slope + self.bend)
        return max(BASELINE_PERCENT / 2**octaves, self.diverges_below_percent, self.grid[0])

    def loss(self, percent: float) -> float:
        """Accuracy that a switch there costs."""
        below_knee = max(0.0, math.log2(self.knee_percent / percent))
        return self.slope * below_knee + self.bend * math.log2(BASELINE_PERCENT / percent)

    def true_run_at(self, percent: float) -> PlayedRun:
        """See `Problem`."""
        share = percent / BASELINE_PERCENT
        if percent < self.diverges_below_percent:
            seconds = share + _DIVERGED_AFTER * (1 - share) * self.ratio
            return PlayedRun(0.0, True, seconds, share)
        accuracy = self.target_accuracy - self.loss(percent)
        return PlayedRun(accuracy, False, self.policy_seconds(percent), share)

    def run_at(self, percent: float, replicate: int) -> PlayedRun:
        """See `Problem`."""
        run = self.true_run_at(percent)
        if run.diverged:
            return run
        chance = np.random.default_rng([_STREAM, self.number, round(percent * 1e6), replicate])
        accuracy = run.accuracy + self.standard_deviation * float(chance.standard_normal())
        missing = max(0.0, float(chance.normal(0.0015, 0.001)))
        stopped_seconds = self._stopped_seconds(percent)
        if stopped_seconds is None:
            return PlayedRun(accuracy, False, run.seconds, run.first_seconds)
        return PlayedRun(
            accuracy, False, run.seconds, run.first_seconds, accuracy - missing, stopped_seconds
        )

    def policy_seconds(self, percent: float) -> float:
        """See `Problem`."""
        share = percent / BASELINE_PERCENT
        return share + (1 - share) * self.ratio

    def _stopped_seconds(self, percent: float) -> float | None:
        share = percent / BASELINE_PERCENT
        if share == 1:
            return 2 / 3
        if share > 0.5:
            return None
        return share + (1 - share) * self.ratio * (2 / 3 if share <= 0.25 else 0.9)


def generated_problem(number: int) -> GeneratedProblem:
    """The job of a number; the same at every call."""
    chance = np.random.default_rng([_STREAM, number])
    knee = math.exp(chance.uniform(math.log(1.5), math.log(75)))
    slope = BETA * math.exp(chance.uniform(math.log(0.7), math.log(20)))
    bend = 0.03 * BETA * chance.exponential() * (chance.random() < 0.5)
    sd = chance.uniform(0.002, 0.012)
    ratio = chance.uniform(0.1, 0.9)
    diverges_below = knee * chance.uniform(0.1, 0.9) * (chance.random() < 0.5)
    known = TARGET + sd / math.sqrt(KNOWN_RUNS) * chance.standard_normal()
    return GeneratedProblem(
        number, knee, slope, bend, sd, ratio, diverges_below, known_accuracy=known
    )
