"""Trains jobs at chosen switch points, to be compared with one target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.searcher.loop.comparison import Comparison
from syncswitch.searcher.loop.trial_loop import LoopOptions
from syncswitch.searcher.results.sweep import Sweep, SweptJob
from syncswitch.searcher.results.transfer import evaluated_switch_point
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.storage.database.engine import Database
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.trainers.trainer import Trainer

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
