"""Recorded asynchronous trainings as problems: 48 runs of each switch point, of 48 seeds.

A replicate has the same seed at every switch point, as forks have; the seeds are dealt anew for
every search. Nothing that the strategies assume went into these data: they come from a simulator
that trains real models with truly stale gradients. No decay of their learning rate is known, so all
runs are whole ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems import BASELINE_PERCENT, BETA
from syncswitch.searcher.simulation.simulator import PlayedRun
from syncswitch.searcher.strategies.baseline import ROUNDING

JOBS = Path(__file__).resolve().parents[1].parent / "shared" / "trust" / "jobs"
_SETTINGS = 6
_CONVERGED = 5


@dataclass(frozen=True, eq=False)
class TrustJob:
    """The recorded runs of one job.

    Attributes:
        name: Of the job.
        percents: Recorded switch points, descending.
        accuracies: (seeds, percents) converged; that of chance where a run diverged.
        diverged: (seeds, percents) which did.
        seconds: (seeds, percents) training time.
        first_seconds: (seeds, percents) the part of it before the switch.
    """

    name: str
    percents: tuple[float, ...]
    accuracies: NDArray[np.float64]
    diverged: NDArray[np.bool_]
    seconds: NDArray[np.float64]
    first_seconds: NDArray[np.float64]

    def kept_share(self, percent: float) -> float:
        """Share of the runs that lose at most beta against the mean of BSP."""
        least = self.accuracies[:, self._place(BASELINE_PERCENT)].mean() - BETA - ROUNDING
        place = self._place(percent)
        kept = (self.accuracies[:, place] >= least) & ~self.diverged[:, place]
        return float(kept.mean())

    def is_good(self, percent: float) -> bool:
        """Whether that is 95 %, or at most five points below BSP's own."""
        wanted = min(0.95, self.kept_share(BASELINE_PERCENT) - 0.05)
        return self.kept_share(percent) >= wanted - ROUNDING

    def time(self, percent: float) -> float:
        """Mean training time, in trainings with BSP alone."""
        mean_seconds = self.seconds.mean(axis=0)
        return float(mean_seconds[self._place(percent)] / mean_seconds[self._place(100.0)])

    def problem(self, number: int) -> TrustProblem:
        """One way to deal the seeds; the same at every call."""
        order = np.random.default_rng([7, number]).permutation(len(self.accuracies))
        return TrustProblem(number, self, tuple(order.tolist()))

    def _place(self, percent: float) -> int:
        return self.percents.index(percent)


@dataclass(frozen=True, eq=False)
class TrustProblem:
    """A job, and the seed of each replicate; see `Problem` for what is not here."""

    number: int
    job: TrustJob
    seeds: tuple[int, ...]
    threshold: float = BETA
    settings: int = _SETTINGS

    @property
    def target_accuracy(self) -> float:
        """The mean of all recorded runs of BSP."""
        return float(self.job.accuracies[:, self.job.percents.index(BASELINE_PERCENT)].mean())

    @property
    def known_accuracy(self) -> float:
        """The same."""
        return self.target_accuracy

    @property
    def known_runs(self) -> int:
        """How many those are."""
        return len(self.seeds)

    @property
    def first_seconds(self) -> float:
        """A training with BSP alone."""
        place = self.job.percents.index(BASELINE_PERCENT)
        return float(self.job.seconds[:, place].mean())

    @property
    def grid(self) -> tuple[float, ...]:
        """The recorded switch points but ASP alone, ascending."""
        return tuple(sorted(percent for percent in self.job.percents if percent))

    @property
    def best_percent(self) -> float:
        """The earliest good one, of which all later ones are good."""
        best = BASELINE_PERCENT
        for percent in reversed(self.grid):
            if not self.job.is_good(percent):
                break
            best = percent
        return best

    def run_at(self, percent: float, replicate: int) -> PlayedRun | None:
        """See `Problem`."""
        if percent not in self.job.percents:
            return None
        run = self.seeds[replicate % len(self.seeds)], self.job.percents.index(percent)
        return PlayedRun(
            float(self.job.accuracies[run]),
            bool(self.job.diverged[run]),
            float(self.job.seconds[run]),
            float(self.job.first_seconds[run]),
        )

    def true_run_at(self, percent: float) -> PlayedRun | None:
        """See `Problem`."""
        if percent not in self.job.percents:
            return None
        place = self.job.percents.index(percent)
        mean = float(self.job.accuracies[:, place].mean())
        return PlayedRun(mean, False, self.policy_seconds(percent), 0.0)

    def policy_seconds(self, percent: float) -> float:
        """See `Problem`."""
        return self.job.time(percent) * self.first_seconds


def trust_jobs(folder: Path = JOBS) -> list[TrustJob]:
    """Reads all recorded jobs of a folder, by name."""
    return [read_job(path) for path in sorted(folder.glob("*.npz"))]


def read_job(path: Path) -> TrustJob:
    """One recorded job, by the name of its file."""
    with np.load(path) as arrays:
        recorded = {name: arrays[name] for name in arrays.files}
    chance = float(recorded["chance"])
    curve = np.nan_to_num(recorded["curve"], nan=chance)
    diverged = recorded["diverged"].astype(bool)
    accuracies = np.where(diverged, chance, curve[:, :, -_CONVERGED:].mean(axis=2))
    percents = tuple(map(float, recorded["settings"]))
    return TrustJob(
        name=path.stem,
        percents=percents,
        accuracies=accuracies,
        diverged=diverged,
        seconds=recorded["total"],
        first_seconds=recorded["first"],
    )
