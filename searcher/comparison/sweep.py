"""Trains jobs at chosen switch points, to be compared with one target."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from syncswitch.searcher.backends.base import Job, JobRequest, TrainerChoice
from syncswitch.searcher.backends.local import named
from syncswitch.searcher.comparison.making import Comparison, check_chief
from syncswitch.searcher.comparison.targets import allowed_and_target
from syncswitch.searcher.comparison.transfer import EvaluatedSwitchPoint, evaluated_switch_point
from syncswitch.searcher.search.trial_loop import LoopOptions
from syncswitch.searcher.speed_up import SpeedUp, measured_speed_up
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.searcher.strategies.observation import ROUNDING
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.run.tensorboard import logged
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


_USUAL_REFERENCE = "bsp"


@dataclass(frozen=True, slots=True)
class SweptJob:
    """One job of a sweep under one set of conditions.

    Attributes:
        study: Name of the study that holds the runs made for this.
        new_runs: How many that are.
        switch_points: In the order in which they were asked for.
        reference: What the user called the workload, with the fields of a variant.
    """

    identity: WorkloadIdentity
    conditions: RunConditions
    study: str
    new_runs: int
    switch_points: tuple[EvaluatedSwitchPoint, ...]
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Jobs on clusters of one size, compared with one target.

    Attributes:
        reference_percent: At this switch point the first of the jobs trains with one protocol
            alone, which says what the accuracy is to be, and how long a training usually takes.
        threshold: beta, the accuracy that may be lost.
        given_target: A, where nobody has to measure it.
    """

    jobs: tuple[SweptJob, ...]
    reference_percent: float
    threshold: float
    given_target: float | None = None

    @property
    def target_accuracy(self) -> float | None:
        """A; None where nobody gave it, and all runs of the reference diverged."""
        if self.given_target is not None:
            return self.given_target
        points = (one for one in self.jobs[0].switch_points)
        return next(
            (one.mean_accuracy for one in points if one.switch_percent == self.reference_percent),
            None,
        )

    def kept_runs(self, switch_point: EvaluatedSwitchPoint) -> int | None:
        """Runs that lose at most the threshold against the target; None without one."""
        target = self.target_accuracy
        if target is None:
            return None
        least = target - self.threshold - ROUNDING
        return sum(accuracy >= least for accuracy in switch_point.accuracies)

    def speed_up(self, job: int, percent: float) -> SpeedUp | None:
        """Times as fast as the reference; None where all runs of either diverged, or none ran."""
        seconds = {
            (number, point.switch_percent): point.seconds
            for number, swept in enumerate(self.jobs)
            for point in swept.switch_points
        }
        return measured_speed_up(seconds, (job, percent), (0, self.reference_percent))


def with_reference(
    pairs: Sequence[tuple[str, str]],
) -> tuple[tuple[tuple[str, str], ...], float]:
    """What all switch points of these pairs of protocols are compared with: BSP alone.

    Returns:
        The pairs, each once, one with BSP in front; and the switch point at which that one is BSP
        alone. Where no pair has BSP, its first protocol alone.
    """
    different = list(dict.fromkeys(pairs))
    first = next((pair for pair in different if _USUAL_REFERENCE in pair), different[0])
    different.remove(first)
    return (first, *different), 0.0 if first[1] == _USUAL_REFERENCE else 100.0


@dataclass(frozen=True)
class JobToSweep:
    """A job, and where it is to be trained.

    Attributes:
        open_trainer: Called with the name of the study when the first run is needed, and again
            after a failure.
        percents: The switch points.
        reference: Normal form of what the user called the workload.
    """

    identity: WorkloadIdentity
    open_trainer: Callable[[str], Trainer]
    percents: tuple[float, ...]
    conditions: RunConditions = RunConditions()  # noqa: RUF009 (it is frozen)
    trainer: str = "local"
    reference: str = ""


def make_sweep(
    database: Database,
    to_sweep: Sequence[JobToSweep],
    *,
    reference_percent: float,
    runs: int = 5,
    threshold: float = 0.01,
    target_accuracy: float | None = None,
    base_seed: int = 0,
    guarded: bool = False,
    say: Callable[[JobToSweep], None] = lambda _: None,
    **options: Unpack[LoopOptions],
) -> Sweep:
    """Makes the runs that are missing; see `Comparison`, of which each job has one.

    Args:
        database: Holds Optuna's tables and ours.
        to_sweep: Jobs on clusters of one size, of which the first is trained at
            `reference_percent` too, unless a target is given.
        reference_percent: See `Sweep`.
        runs: R, how many runs of each switch point there are to be.
        threshold: beta.
        target_accuracy: A; None to measure it.
        base_seed: The seeds of all runs derive from it.
        guarded: Whether what fails goes back to its switch; then each job is trained with its first
            protocol alone, too.
        say: Is told which job comes next.
        **options: See `LoopOptions`.

    Raises:
        UserError: As `Comparison`; only the first job's baseline must not diverge.
        RetryableError: Too many runs in a row failed.
    """
    made: list[tuple[Comparison, SweptJob]] = []
    for number, job in enumerate(to_sweep):
        is_reference = number == 0 and target_accuracy is None
        percents = (reference_percent, *job.percents) if is_reference else job.percents
        if guarded and percents:
            percents = (BASELINE_PERCENT, *percents)
        percents = tuple(dict.fromkeys(percents))
        if not percents:
            continue
        strategy = ComparisonStrategy(
            len(percents),
            runs,
            threshold,
            target_accuracy,
            percents=percents,
            has_baseline=is_reference and reference_percent == BASELINE_PERCENT,
            guarded=guarded,
        )
        say(job)
        made.append(_swept(database, job, strategy, base_seed, **options))
    swept = tuple(job for _, job in made)
    sweep = Sweep(swept, reference_percent, threshold, target_accuracy)
    if sweep.target_accuracy is not None:
        for comparison, _ in made:
            comparison.set_target(sweep.target_accuracy)
    return sweep


def _swept(
    database: Database,
    job: JobToSweep,
    strategy: ComparisonStrategy,
    base_seed: int,
    **options: Unpack[LoopOptions],
) -> tuple[Comparison, SweptJob]:
    options["reference"] = job.reference or job.identity.name
    comparison = Comparison(
        database,
        job.identity,
        strategy,
        lambda: job.open_trainer(comparison.study_name),
        trainer=job.trainer,
        base_seed=base_seed,
        conditions=job.conditions,
        **options,
    )
    found = comparison.run()
    points = tuple(evaluated_switch_point(percent, found.rows) for percent in strategy.percents)
    name = comparison.study_name
    swept = SweptJob(job.identity, job.conditions, name, found.new_runs, points, job.reference)
    return comparison, swept


_MOST_POINTS = 30


@dataclass(frozen=True)
class SweepPlan:
    """The jobs of a sweep over workloads, pairs of protocols and sizes of cluster.

    Attributes:
        to_train: The normal form of what the user called the workload, the job, and its
            conditions; one size of cluster after the other.
        columns: How many jobs there are of each size.
        reference_percent: See `Sweep`.
        threshold: beta, as an accuracy.
        target_accuracy: A, as an accuracy; None to measure it for each size.
    """

    to_train: tuple[tuple[str, Job, RunConditions], ...]
    columns: int
    percents: tuple[float, ...]
    reference_percent: float
    threshold: float
    target_accuracy: float | None
    trainer: str
    runs: int
    seed: int
    guarded: bool

    @property
    def jobs(self) -> list[Job]:
        """The jobs, in order."""
        return [job for _, job, _ in self.to_train]

    def run(
        self,
        database: Database,
        openings: Sequence[Callable[[], Trainer]],
        tensorboard: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
        **options: Unpack[LoopOptions],
    ) -> list[Sweep]:
        """Makes the runs that are missing; a sweep for each size of cluster.

        Args:
            database: Holds Optuna's tables and ours.
            openings: What opens the trainer of each job.
            tensorboard: Folder for logs of the runs; None for none.
            say: Is told which job comes next, where there are several.
            **options: See `LoopOptions`.

        Raises:
            UserError: As `make_sweep`.
            RetryableError: Too many runs in a row failed.
        """
        ready = [
            JobToSweep(
                job.identity,
                partial(_logged_trainer, opening, tensorboard),
                self.percents,
                conditions,
                self.trainer,
                called,
            )
            for (called, job, conditions), opening in zip(self.to_train, openings, strict=True)
        ]

        def announce(job: JobToSweep) -> None:
            if len(ready) > 1:
                say(f"{job.reference} on {job.identity.cluster}:")

        return [
            make_sweep(
                database,
                ready[start : start + self.columns],
                reference_percent=self.reference_percent,
                runs=self.runs,
                threshold=self.threshold,
                target_accuracy=self.target_accuracy,
                base_seed=self.seed,
                guarded=self.guarded,
                say=announce,
                **options,
            )
            for start in range(0, len(ready), self.columns)
        ]


def plan_sweep(
    trainer: TrainerChoice,
    reference: str | None,
    percents: str | Sequence[float],
    *,
    variants: Sequence[str] = (),
    protocols: Sequence[str] = (),
    sizes: Sequence[int | None] = (None,),
    chosen: ConditionsChoice,
    runs: int,
    threshold: float | None,
    target_accuracy: float | None,
    guarded: bool,
    seed: int,
    storage_url: str,
) -> SweepPlan:
    """Puts the jobs of a sweep together; nothing is trained.

    Args:
        trainer: What makes the runs.
        reference: The workload, as the user named it; None where the trainer needs none.
        percents: The switch points, as numbers or as a text such as `100,50,0`.
        variants: `FIELD=VALUE` of workloads that are trained, too.
        protocols: Pairs such as `bsp,asp`; none for the usual one.
        sizes: n of each cluster; None for the usual size.
        chosen: The conditions of the runs.
        runs: R, how many runs of each switch point there are to be.
        threshold: beta, in the unit of the metric; None for the usual one.
        target_accuracy: The value of the metric to keep; None to measure it.
        guarded: Whether what fails goes back to its switch.
        seed: The seeds of all runs derive from it.
        storage_url: The database of the runs.

    Raises:
        UserError: Something does not exist, is out of range, or does not fit the rest.
    """
    points = _switch_points(percents)
    pairs, reference_percent = with_reference([trainer.pair(text) for text in protocols or (None,)])
    if variants and reference is None:
        raise UserError("--variant needs a WORKLOAD that it varies")
    names = tuple(dict.fromkeys((reference, *(f"{reference},{one}" for one in variants))))
    to_train: list[tuple[str, Job, RunConditions]] = []
    for size, name, pair in itertools.product(sizes, names, pairs):
        workers, usual = trainer.workers(size), trainer.default_workers
        request = JobRequest(name, workers, usual, pair, storage_url, seed)
        conditions = trainer.conditions(chosen, request.size, max(points), pair[0])
        check_chief(conditions.injections, "sweep")
        job = trainer.job(request)
        called = job.reference or normal_reference(named(request))
        to_train.append((called, job, conditions))
    metric = to_train[0][1].identity.decided_by  # no variant has another one
    allowed, target = allowed_and_target(metric, threshold, target_accuracy)
    return SweepPlan(
        to_train=tuple(to_train),
        columns=len(names) * len(pairs),
        percents=points,
        reference_percent=reference_percent,
        threshold=allowed,
        target_accuracy=target,
        trainer=trainer.kind,
        runs=runs,
        seed=seed,
        guarded=guarded,
    )


def _switch_points(percents: str | Sequence[float]) -> tuple[float, ...]:
    """Each once. Raises UserError."""
    text = percents if isinstance(percents, str) else ",".join(f"{one:g}" for one in percents)
    try:
        found = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        found = ()
    if not (0 < len(found) <= _MOST_POINTS and all(0 <= one <= 100 for one in found)):
        raise UserError(
            f"--at is {text!r}: give 1 to {_MOST_POINTS} percents from 0 to 100, such as 100,50,0"
        )
    return found


def _logged_trainer(
    opening: Callable[[], Trainer], tensorboard: Path | None, study: str
) -> Trainer:
    return logged(opening(), tensorboard, study)
