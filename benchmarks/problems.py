"""What a search strategy is tried on, and what makes its answer right."""

from __future__ import annotations

from typing import Protocol

from syncswitch.searcher.simulation.simulator import PlayedRun
from syncswitch.searcher.strategies.baseline import ROUNDING

BETA = 0.01
BASELINE_PERCENT = 100.0


class Problem(Protocol):
    """What a strategy may ask of a job, and what is true of it.

    Attributes:
        number: Tells it from the others; the seed of strategies that need one.
        settings: M, how often the range of switch points may be halved.
        threshold: beta.
        target_accuracy: The true A.
        known_accuracy: A as a recurring job knows it.
        known_runs: So many runs stand behind that.
        first_seconds: A training with the first protocol alone: the unit of costs.
        grid: The candidates in percent and the first protocol alone, ascending.
        best_percent: The earliest switch that loses at most beta, on a grid or between.
    """

    @property
    def number(self) -> int: ...
    @property
    def settings(self) -> int: ...
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

    def run_at(self, percent: float, replicate: int) -> PlayedRun | None:
        """A run; the same one for every strategy that asks. None where nobody recorded one."""

    def true_run_at(self, percent: float) -> PlayedRun | None:
        """A run without noise."""

    def policy_seconds(self, percent: float) -> float:
        """Expected time of a training that switches there."""


def halvings(settings: int) -> tuple[float, ...]:
    """The ends of repeated halving in percent, ascending."""
    return tuple(BASELINE_PERCENT / 2**k for k in range(settings, -1, -1))


def is_acceptable(problem: Problem, percent: float) -> bool:
    """Whether a switch there loses at most beta."""
    run = problem.true_run_at(percent)
    if run is None or run.diverged:
        return False
    loss = problem.target_accuracy - run.accuracy
    return loss <= problem.threshold + ROUNDING


def earliest_acceptable(problem: Problem) -> float:
    """The right answer on the grid."""
    return next(percent for percent in problem.grid if is_acceptable(problem, percent))
