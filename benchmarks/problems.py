"""Generated and published jobs as problems for search strategies, with their right answers.

Generated jobs are drawn from a family (`GeneratedProblem`). Of the published runs the mean of a
switch point's recorded runs is the truth (`RecordedProblem`).
"""

from __future__ import annotations

import math
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from reproduction.logs import write_table
from reproduction.replays import PlayedRecording
from reproduction.simulator import PlayedRun
from syncswitch.searcher.strategies.adaptive.strategy import halved_percents
from syncswitch.searcher.strategies.baseline import ROUNDING
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.importing import import_runs, read_table
from syncswitch.storage.records.trial import BASELINE_PERCENT as BASELINE_PERCENT
from syncswitch.trainers.replay import read_recording

BETA = 0.01
PAPER = Path(__file__).resolve().parents[1].parent / "shared" / "paper" / "logs"
"""The logs of the Sync-Switch paper's authors, if they are there."""


class Problem(Protocol):
    """A job as a strategy sees it, and the truth about it.

    Attributes:
        number: Tells it from the others; the seed of strategies that need one.
        halvings: M, how often the range of switch points may be halved.
        threshold: beta.
        target_accuracy: The true A.
        known_accuracy: A as a recurring job knows it.
        known_runs: So many runs stand behind that.
        first_seconds: A training with the first protocol alone: the unit of costs.
        grid: The candidates in percent and the first protocol alone, ascending.
        best_percent: The earliest switch that loses at most beta, on a grid or between.
        owns_momentum: Whether each worker keeps its own momentum after the switch.
    """

    @property
    def number(self) -> int: ...
    @property
    def halvings(self) -> int: ...
    @property
    def threshold(self) -> float: ...
    @property
    def target_accuracy(self) -> float: ...
    @property
    def known_accuracy(self) -> float: ...
    @property
    def known_runs(self) -> int: ...
    @property
    def first_seconds(self) -> float: ...
    @property
    def grid(self) -> tuple[float, ...]: ...
    @property
    def best_percent(self) -> float: ...
    @property
    def owns_momentum(self) -> bool: ...

    def run_at(self, percent: float, replicate: int) -> PlayedRun | None:
        """A run, the same for every strategy; None if none was recorded."""

    def true_run_at(self, percent: float) -> PlayedRun | None:
        """A run without noise."""

    def policy_seconds(self, percent: float) -> float:
        """Expected time of a training that switches there."""


def is_acceptable(problem: Problem, percent: float) -> bool:
    """Whether a switch there loses at most beta of accuracy."""
    run = problem.true_run_at(percent)
    if run is None or run.diverged:
        return False
    loss = problem.target_accuracy - run.accuracy
    return loss <= problem.threshold + ROUNDING


def earliest_acceptable(problem: Problem) -> float:
    """The right answer on the grid."""
    return next(percent for percent in problem.grid if is_acceptable(problem, percent))


TARGET = 0.92
KNOWN_RUNS = 5

_DIVERGED_AFTER = 0.3
# Of the random numbers; each problem draws its own with its number.
_STREAM = 20_260


@dataclass(frozen=True)
class GeneratedProblem:
    """A generated job; see also `Problem`.

    What is assumed of them, in accuracy from 0 to 1, with A = 0.92:

    - Above a knee (log-uniform in 1.5 to 75 %) nothing is lost; below it every halving of the
      switch point costs 0.7 to 20 beta (log-uniform). Half of the curves are not quite flat above
      the knee: every halving costs 0.03 beta on average (exponential).
    - Runs are independent, also those that share their start: normal around the curve, with a
      standard deviation of 0.002 to 0.012 (uniform).
    - A training with the second protocol takes 0.1 to 0.9 (uniform) of the time of the first.
    - Half of the jobs diverge below a point at 0.1 to 0.9 (uniform) of their knee, always, and show
      it after 0.3 of the second phase.
    - A run may be stopped at 2/3 of its second phase (at 100 % of its only one); where it switches
      between 25 and 50 % only at 9/10 of it, and above not at all. It then measures a little less:
      normal with mean 0.0015 and standard deviation 0.001, but never more than the whole run.
    - A recurring job knows A as the mean of 5 runs.

    Attributes:
        knee_percent: Nothing is lost above it.
        slope: Accuracy lost for every halving of the switch point below.
        bend: Accuracy lost for every halving from 100 % on, in addition.
        standard_deviation: Standard deviation of a run's accuracy.
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
    halvings: int = 6
    owns_momentum: bool = False
    threshold: float = BETA
    target_accuracy: float = TARGET
    first_seconds: float = 1.0

    @property
    def grid(self) -> tuple[float, ...]:
        """The ends of repeated halving, ascending."""
        return halved_percents(self.halvings)[::-1]

    @property
    def best_percent(self) -> float:
        """Where the loss reaches beta or divergence ends, but not before the grid begins."""
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
        share = percent / BASELINE_PERCENT
        if percent < self.diverges_below_percent:
            seconds = share + _DIVERGED_AFTER * (1 - share) * self.ratio
            return PlayedRun(0.0, True, seconds, share)
        accuracy = self.target_accuracy - self.loss(percent)
        return PlayedRun(accuracy, False, self.policy_seconds(percent), share)

    def run_at(self, percent: float, replicate: int) -> PlayedRun:
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

    def kept_share(self, percent: float = BASELINE_PERCENT, threshold: float = BETA) -> float:
        """Share of the runs without a guard that keep the accuracy."""
        if percent < self.diverges_below_percent:
            return 0.0
        spread = statistics.NormalDist(0, self.standard_deviation)
        return spread.cdf(threshold - self.loss(percent))

    def policy_seconds(self, percent: float) -> float:
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


@dataclass(frozen=True)
class CommandProblem(GeneratedProblem):
    """A job as training commands have them: its runs share no start, and none is stopped.

    Attributes:
        by_seed: Share of the variance that a seed has at every switch point.
        has_threshold: Whether beta is given; otherwise it is measured.
    """

    by_seed: float = 0.0
    threshold: float = 0.0

    @property
    def grid(self) -> tuple[float, ...]:
        """The switch points of commands."""
        return tuple(sorted({*halved_percents(self.halvings), 75.0}))

    def run_at(self, percent: float, replicate: int) -> PlayedRun:
        run = self.true_run_at(percent)
        of_seed = np.random.default_rng([_STREAM, self.number, replicate]).standard_normal()
        of_run = np.random.default_rng([_STREAM, self.number, replicate, round(percent * 1e6)])
        z = math.sqrt(self.by_seed) * of_seed
        z += math.sqrt(1 - self.by_seed) * of_run.standard_normal()
        accuracy = run.accuracy + self.standard_deviation * float(z)
        return PlayedRun(accuracy, False, run.seconds, run.first_seconds)


def command_problems(number: int) -> dict[str, CommandProblem]:
    """Jobs as training commands have them, by what they are; a number deals the seeds.

    Below the knee every halving costs so many thresholds that nobody could overlook it, but for
    the job that has its knee in three quarters, of which half a training keeps one of four.
    """

    def job(knee: float, deviation: float, slope: float, **own: float) -> CommandProblem:
        return CommandProblem(number, knee, slope, 0.0, deviation, 0.4, 0.0, **own)

    given = {"threshold": BETA}
    loss = {"target_accuracy": -2.4}
    return {
        "knee 75, 0.001": job(75, 0.001, 0.05, **given),
        "knee 75, 0.006": job(75, 0.006, 0.024, **given),
        "knee 50, 0.003": job(50, 0.003, 0.05, **given),
        "knee 12.5, 0.003": job(12.5, 0.003, 0.05, **given),
        "no knee, 0.003": job(0.1, 0.003, 0.05, **given),
        "knee 50, 0.02": job(50, 0.02, 0.08, **given),
        "no knee, 0.06": job(0.1, 0.06, 0.05, **given, by_seed=0.9),
        "loss, knee 50, 0.02": job(50, 0.02, 0.2, **loss),
        "loss, knee 12.5, 0.02": job(12.5, 0.02, 0.2, **loss),
        "loss, no knee, 0.02": job(0.1, 0.02, 0.2, **loss),
    }


SETUPS = {"resnet32-cifar10-8": 5, "resnet32-cifar10-16": 2}
"""The published setups, and how often their range was halved."""


@dataclass(frozen=True)
class RecordedJob:
    """The runs of one setup.

    Attributes:
        runs: The recorded runs.
        halvings: M.
    """

    runs: PlayedRecording
    halvings: int

    def problem(self, number: int) -> RecordedProblem:
        """The draws of a number; the same at every call."""
        return RecordedProblem(number, self)


@dataclass(frozen=True)
class RecordedProblem:
    """One way to draw the recorded runs; see also `Problem`.

    The runs of a switch point are drawn without replacement, and anew once all are drawn. A run
    that shares its start with another keeps its own accuracy. How long the runs took that diverged
    was not recorded, so they cost nothing.
    """

    number: int
    job: RecordedJob
    threshold: float = BETA
    owns_momentum: bool = False

    @property
    def halvings(self) -> int:
        """As deep as runs were recorded."""
        return self.job.halvings

    @property
    def target_accuracy(self) -> float:
        """The mean of all recorded runs of the first protocol alone."""
        return self.job.runs.means[BASELINE_PERCENT].accuracy

    @property
    def known_accuracy(self) -> float:
        """The true accuracy, which a recurring job knows."""
        return self.target_accuracy

    @property
    def known_runs(self) -> int:
        """The number of these runs."""
        return len(self.job.runs.recording.at(BASELINE_PERCENT))

    @property
    def first_seconds(self) -> float:
        """Their mean time."""
        return self.job.runs.means[BASELINE_PERCENT].seconds

    @property
    def grid(self) -> tuple[float, ...]:
        """The recorded ends of repeated halving."""
        ends = halved_percents(self.halvings)[::-1]
        return tuple(percent for percent in ends if percent in self.job.runs.means)

    @property
    def best_percent(self) -> float:
        """The answer of the search that knows all runs: nothing between was recorded."""
        return earliest_acceptable(self)

    def run_at(self, percent: float, replicate: int) -> PlayedRun | None:
        return self.job.runs.run_at(percent, replicate, deck_seed=self.number)

    def true_run_at(self, percent: float) -> PlayedRun | None:
        return self.job.runs.means.get(percent)

    def policy_seconds(self, percent: float) -> float:
        return self.job.runs.means[percent].seconds


def recorded_jobs(folder: Path) -> dict[str, RecordedJob]:
    """Reads the published logs as users do: by an import into a database.

    Args:
        folder: A checkout of their authors' repository, or its folder `data`.
    """
    stop = StopRule(precision=BETA / 2)
    with (
        tempfile.TemporaryDirectory() as name,
        open_database(f"sqlite:///{name}/published.db", create=True) as database,
    ):
        table = Path(name) / "runs.csv"
        write_table(folder, table)
        import_runs(database, read_table(table))
        return {
            setup: RecordedJob(
                PlayedRecording.of(
                    read_recording(database, setup, workers=None, protocols=("bsp", "asp")), stop
                ),
                halvings,
            )
            for setup, halvings in SETUPS.items()
        }
