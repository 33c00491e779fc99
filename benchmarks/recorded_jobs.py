"""Recorded asynchronous trainings as problems: 48 runs of each switch point, of 48 seeds.

A replicate has the same seed at every switch point, as forks have; the seeds are dealt anew for
every search. Nothing that the strategies assume went into these data: they come from a simulator
that trains real models with truly stale gradients. No decay of their learning rate is known, so all
runs are whole ones.

What a guarded run would have done follows from the recorded curves: up to the alarm it is the
recorded run; from its switch on it is the run of the first protocol alone with the same seed, as a
fork has exactly the first part of that.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems import BASELINE_PERCENT, BETA
from reproduction.simulator import PlayedRun
from syncswitch.searcher.search.recorded import measured_band
from syncswitch.searcher.strategies.baseline import ROUNDING
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import EARLY_RULES, OWN_MOMENTUM, OWN_OPTIMIZER, SEMI_SYNC
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.run.guard import AbandonedEvaluations, FailureDetector

_RECORDED = Path(__file__).resolve().parents[1].parent / "shared" / "trust"
JOBS = _RECORDED / "jobs"
OWN_MOMENTUM_JOBS = _RECORDED / "own-momentum"
"""The same jobs, seeds and times, where each worker keeps its own momentum after the switch."""
SEMI_SYNC_JOBS = _RECORDED / "pooled"
"""The same, where momenta are averaged in semi-synchronous local SGD."""
SHARED_MOMENTUM = "same"
_RULES = (SHARED_MOMENTUM, OWN_MOMENTUM, SEMI_SYNC)
_ACCURACY = Metric()
_CONVERGED = 5


@dataclass(frozen=True, eq=False)
class TrustJob:
    """The recorded runs of one job.

    Attributes:
        name: Name of the job.
        percents: Recorded switch points, descending.
        accuracies: (seeds, percents) converged; that of chance where a run diverged.
        diverged: (seeds, percents) which did.
        seconds: (seeds, percents) training time.
        first_seconds: (seeds, percents) the part of it before the switch.
        momentum_after_switch: The rule of the second phase, as in `ScheduledJob`.
    """

    name: str
    percents: tuple[float, ...]
    accuracies: NDArray[np.float64]
    diverged: NDArray[np.bool_]
    seconds: NDArray[np.float64]
    first_seconds: NDArray[np.float64]
    momentum_after_switch: str = SHARED_MOMENTUM

    @property
    def owns_momentum(self) -> bool:
        """Whether the rule bears an early switch, as own momentum does."""
        return self.momentum_after_switch in EARLY_RULES

    @property
    def owns_optimizer(self) -> bool:
        """Whether each worker has an optimizer of Keras of its own, such as Adam."""
        return self.momentum_after_switch == OWN_OPTIMIZER

    @property
    def grid(self) -> tuple[float, ...]:
        """Recorded switch points, ascending; ASP alone only where an early switch is borne."""
        earliest = -1.0 if self.owns_momentum else 0.0
        return tuple(sorted(percent for percent in self.percents if percent > earliest))

    @property
    def halvings(self) -> int:
        """How often the grid halves the range."""
        return sum(0 < percent < BASELINE_PERCENT for percent in self.percents)

    def kept_share(self, percent: float) -> float:
        """Share of the runs that lose at most beta against the mean of BSP."""
        least = self.accuracies[:, self._place(BASELINE_PERCENT)].mean() - BETA - ROUNDING
        place = self._place(percent)
        kept = (self.accuracies[:, place] >= least) & ~self.diverged[:, place]
        return float(kept.mean())

    def is_good(self, percent: float) -> bool:
        """Whether that share is 95 %, or at most five points below BSP's own."""
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
    """A job, and the seed of each replicate; see also `Problem`."""

    number: int
    job: TrustJob
    seeds: tuple[int, ...]
    threshold: float = BETA

    @property
    def halvings(self) -> int:
        return self.job.halvings

    @property
    def target_accuracy(self) -> float:
        """The mean of all recorded runs of BSP."""
        return float(self.job.accuracies[:, self.job.percents.index(BASELINE_PERCENT)].mean())

    @property
    def known_accuracy(self) -> float:
        """The true accuracy, which a recurring job knows."""
        return self.target_accuracy

    @property
    def known_runs(self) -> int:
        """The number of these runs."""
        return len(self.seeds)

    @property
    def first_seconds(self) -> float:
        """A training with BSP alone."""
        place = self.job.percents.index(BASELINE_PERCENT)
        return float(self.job.seconds[:, place].mean())

    @property
    def grid(self) -> tuple[float, ...]:
        return self.job.grid

    @property
    def owns_momentum(self) -> bool:
        return self.job.owns_momentum

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
        if percent not in self.job.percents:
            return None
        place = self.job.percents.index(percent)
        mean = float(self.job.accuracies[:, place].mean())
        return PlayedRun(mean, False, self.policy_seconds(percent), 0.0)

    def policy_seconds(self, percent: float) -> float:
        return self.job.time(percent) * self.first_seconds


def parsed(arguments: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of a benchmark on the recorded jobs of the folder `--jobs`, or of the panel."""
    arguments.add_argument(
        "--momentum-after-switch", choices=_RULES, default=SHARED_MOMENTUM,
        help="what the second phase of recordings that do not say so does with momentum (default:"
        " %(default)s, for all workers)",
    )  # fmt: skip
    options = arguments.parse_args()
    if getattr(options, "panel", None):
        return options
    if not list(options.jobs.glob("*.npz")):
        arguments.error(f"--jobs {options.jobs}: no recorded jobs there; give their folder")
    return options


def trust_jobs(folder: Path, rule: str = SHARED_MOMENTUM) -> list[TrustJob]:
    """Reads all recorded jobs of a folder, by name; `rule` is for those that do not say theirs."""
    return [read_job(path, rule) for path in sorted(folder.glob("*.npz"))]


def read_job(path: Path, rule: str = SHARED_MOMENTUM) -> TrustJob:
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
        momentum_after_switch=str(recorded.get("momentum_after_switch", rule)),
    )


@dataclass(frozen=True, slots=True)
class Use:
    """One training.

    Attributes:
        seed: Row of the recording.
        time: In trainings with BSP alone, what an alarm cost included.
        kept: Whether its model loses at most beta against BSP's true mean.
        false_alarms: Switches that the guard took back, though they would have kept the accuracy.
        failed: Switch points that it took back, ascending, each with what it converged to; None
            where it did not come to its end.
        alarmed_after: Share of what came after each of these that had passed at the alarm.
        observed: The switch that held, and what it came to.
    """

    seed: int
    time: float
    kept: bool
    false_alarms: int
    failed: tuple[tuple[float, float | None], ...]
    alarmed_after: tuple[float, ...]
    observed: Observation


@dataclass(frozen=True, eq=False)
class GuardedJob:
    """The recorded runs of one job, with their curves.

    Attributes:
        job: The results of the runs.
        curves: (seeds, percents, tests) accuracy.
        clock: (seeds, percents, tests) seconds.
        steps: (tests,) worker-steps.
        metric: What the tests measure.
        decays: Worker-steps at which the learning rate decays; none where nobody recorded them, and
            None for a schedule.
    """

    job: TrustJob
    curves: NDArray[np.float64]
    clock: NDArray[np.float64]
    steps: tuple[int, ...]
    metric: Metric = _ACCURACY
    decays: tuple[int, ...] | None = ()

    @property
    def grid(self) -> tuple[float, ...]:
        return self.job.grid

    def seeds(self, number: int) -> Iterator[int]:
        """Those of all trainings in their order, dealt anew for every number; without end."""
        chance = np.random.default_rng([11, number])
        while True:
            yield from chance.permutation(len(self.curves)).tolist()

    def tests(self, seed: int, percent: float) -> list[Evaluation]:
        """The recorded tests of a run; nobody recorded its training loss."""
        run = seed, self._place(percent)
        return [
            Evaluation(step, float(seconds), float(accuracy), 0.0)
            for step, seconds, accuracy in zip(
                self.steps, self.clock[run], self.curves[run], strict=True
            )
        ]

    def band(self, seeds: Iterable[int]) -> Band:
        """The band of runs of BSP alone with these seeds, each once."""
        known = list(dict.fromkeys(seeds))
        curves = (self.tests(seed, BASELINE_PERCENT) for seed in known)
        return measured_band(self.target_accuracy(known), BETA, curves)

    def target_accuracy(self, seeds: Iterable[int]) -> float:
        """Mean of BSP alone with these seeds."""
        known = list(dict.fromkeys(seeds))
        return float(self.job.accuracies[known, self._place(BASELINE_PERCENT)].mean())

    def train(
        self, percent: float, seed: int, band: Band | None, later: Sequence[float] = ()
    ) -> Use:
        """A training with a switch; guarded where there is a band.

        Args:
            percent: The first switch.
            seed: Row of the recording.
            band: The guard's band.
            later: Further switch points, ascending, for when one fails; after the last of them the
                training goes on with the first protocol alone.
        """
        baseline = seed, self._place(BASELINE_PERCENT)
        failed: list[tuple[float, float | None]] = []
        alarmed_after: list[float] = []
        false_alarms, wasted = 0, 0.0
        abandoned: AbandonedEvaluations | None = None
        for at in (percent, *later, BASELINE_PERCENT):
            run = seed, self._place(at)
            alarm_seconds = None if band is None else self.alarm_seconds(at, seed, band, abandoned)
            if alarm_seconds is None:
                break
            switch = round(self.steps[-1] * at / 100)
            abandoned = AbandonedEvaluations(
                switch,
                tuple(
                    one
                    for one in self.tests(seed, at)
                    if one.worker_step > switch and one.elapsed_seconds <= alarm_seconds
                ),
            )
            is_whole = alarm_seconds >= self.clock[run][-1] and not self.job.diverged[run]
            failed.append((at, float(self.job.accuracies[run]) if is_whole else None))
            false_alarms += self._is_kept(run)
            gone = alarm_seconds - float(self.job.first_seconds[run])
            wasted += gone
            alarmed_after.append(gone / float(self.job.seconds[run] - self.job.first_seconds[run]))
        seconds = wasted + float(self.job.seconds[run])
        return Use(
            seed=seed,
            time=seconds / float(self.job.seconds[:, baseline[1]].mean()),
            kept=self._is_kept(run),
            false_alarms=false_alarms,
            failed=tuple(failed),
            alarmed_after=tuple(alarmed_after),
            observed=Observation(
                at,
                float(self.job.accuracies[run]),
                bool(self.job.diverged[run]),
                cost=self._cost(at, seed, float(self.job.seconds[run])),
            ),
        )

    def alarm_seconds(
        self, percent: float, seed: int, band: Band, abandoned: AbandonedEvaluations | None = None
    ) -> float | None:
        """The time at which the guard sends a run back, after a failed one or not; None if not."""
        if percent == BASELINE_PERCENT:
            return None
        settled_at, W = None, self.steps[-1]
        if self.job.owns_momentum:
            settled_at = W if self.decays is None else max(self.decays, default=0)
        guard = FailureDetector(band, W, self.metric, settled_at, self.decays)
        switch = round(W * percent / 100)
        tests, failures = self.tests(seed, percent), int(abandoned is not None)
        first = next(number for number, test in enumerate(tests) if test.worker_step > switch)
        for number in range(first, len(tests)):
            if guard.alarm(tests[: number + 1], switch, failures, abandoned) is not None:
                return tests[number].elapsed_seconds
        run = seed, self._place(percent)
        return float(self.job.seconds[run]) if self.job.diverged[run] else None

    def _cost(self, percent: float, seed: int, seconds: float) -> TrialCost:
        run, share = (seed, self._place(percent)), percent / 100
        first = float(self.job.first_seconds[run])
        second = float(self.job.seconds[run]) - first
        return TrialCost(
            seconds, first / share if share else None, second / (1 - share) if share < 1 else None
        )

    def _is_kept(self, run: tuple[int, int]) -> bool:
        target = self.job.accuracies[:, self._place(BASELINE_PERCENT)].mean()
        is_near = self.job.accuracies[run] >= target - BETA - ROUNDING
        return bool(is_near and not self.job.diverged[run])

    def _place(self, percent: float) -> int:
        return self.job.percents.index(percent)


def guarded_jobs(folder: Path, rule: str = SHARED_MOMENTUM) -> list[GuardedJob]:
    """Reads all recorded jobs of a folder, by name; `rule` is for those that do not say theirs."""
    return [_read(path, rule) for path in sorted(folder.glob("*.npz"))]


def _read(path: Path, rule: str) -> GuardedJob:
    with np.load(path) as arrays:
        curves = np.nan_to_num(arrays["curve"], nan=float(arrays["chance"]))
        steps = tuple(int(step) for step in arrays["eval_at"])
        decays: tuple[int, ...] | None = ()
        if "decay_steps" in arrays.files:
            decays = tuple(int(step) for step in arrays["decay_steps"])
        return GuardedJob(read_job(path, rule), curves, arrays["seconds"], steps, decays=decays)


def write_job(path: Path, job: GuardedJob) -> None:
    """Writes the recorded runs of a job in the form in which they are read, with its rule."""
    runs = job.job
    np.savez_compressed(
        path,
        settings=np.array(runs.percents),
        eval_at=np.array(job.steps),
        curve=job.curves.astype(np.float32),
        seconds=job.clock.astype(np.float32),
        total=runs.seconds.astype(np.float32),
        first=runs.first_seconds.astype(np.float32),
        diverged=runs.diverged,
        chance=np.array(0.0),
        momentum_after_switch=np.array(runs.momentum_after_switch),
        decay_steps=np.array(job.decays, int),
    )
