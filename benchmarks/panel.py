"""The panel of jobs: what a switch to ASP costs each of them, and what BSP's own rate does.

    python -m benchmarks.panel [--jobs gpt rings ...] [--percents 25 6.25 0] [--seeds 10]
        [--seconds asp local-sgd:8:semi-sync] [--scalings 3 1] [--worker-steps N]
        [--file panel.jsonl]

Simulated, with the profile of the paper's cluster, without a guard. A run keeps the accuracy if it
ends at most 0.01 (in its metric) below the mean of BSP. `--seconds` are the second protocols. With
`--scalings` BSP trains with other limits of its rate as well, in rates of one worker. What is in
the file is not trained again.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.console import at_most, new_table, parser
from benchmarks.panel_jobs import BY_ROWS, OPEN, UNSEEN, PanelJob
from benchmarks.recorded_jobs import GuardedJob
from benchmarks.trainings import CLUSTERS, Recorded, Training, guarded_job
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialSpec
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity

THRESHOLD = 0.01
JOBS = {job.workload.name: job for job in (*OPEN, *UNSEEN, *BY_ROWS)}


def identity(job: PanelJob, second: str = "asp") -> ScheduledJob:
    """The identity of a job that switches from BSP on its simulated cluster."""
    return simulated_identity(job.workload, job.workers, ("bsp", second), CLUSTERS[job.cluster]())


def trained(
    job: PanelJob, percents: Sequence[float], seeds: int, recorded: Recorded, second: str = "asp"
) -> Iterator[list[Training]]:
    """Yields the runs of a job at each switch point."""
    trainer, known = None, identity(job, second)

    def make(spec: TrialSpec) -> Training:
        nonlocal trainer
        if trainer is None:
            trainer = SimulatedTrainer(job.workload, job.workers, CLUSTERS[job.cluster]())
        return Training.of(trainer.train(spec))

    for percent in percents:
        yield [
            recorded.find(
                f"{job.workload.name} {known.key} {percent:g} {seed}",
                partial(make, TrialSpec(known, percent, seed)),
            )
            for seed in range(seeds)
        ]
    if trainer is not None:
        trainer.close()


def jobs_to_replay(path: Path, percents: Sequence[float]) -> list[GuardedJob]:
    """Returns the panel's jobs to replay, with the seeds that a file has of BSP and each percent.

    A job whose BSP diverged says nothing of a switch.
    """
    recorded, found = Recorded(path), []
    points = tuple(sorted({BASELINE_PERCENT, *percents}, reverse=True))
    for name, job in JOBS.items():
        known, by_seed = identity(job), []
        for seed in itertools.count():
            keys = (f"{name} {known.key} {percent:g} {seed}" for percent in points)
            runs = [run for run in map(recorded.known, keys) if run is not None]
            if len(runs) < len(points):
                break
            by_seed.append(runs)
        if by_seed and not any(runs[0].diverged for runs in by_seed):
            found.append(guarded_job(known, name, points, list(zip(*by_seed, strict=True))))
    return found


def mean_accuracy(runs: Sequence[Training]) -> float:
    """The mean of those that did not diverge."""
    ended = [run.accuracy for run in runs if not run.diverged]
    return statistics.fmean(ended) if ended else float("nan")


def kept(runs: Sequence[Training], base: Sequence[Training]) -> int:
    """How many runs end at most the threshold below the mean of BSP."""
    least = mean_accuracy(base) - THRESHOLD - 1e-9
    return sum(not run.diverged and run.accuracy >= least for run in runs)


def row(name: str, way: str, runs: Sequence[Training], base: Sequence[Training]) -> list[str]:
    """The figures of runs beside those of BSP."""
    seconds = statistics.fmean(run.seconds for run in base)
    return [
        name,
        way,
        f"{abs(mean_accuracy(runs)):.4f}",
        f"{kept(runs, base)} of {len(runs)}",
        f"{statistics.fmean(run.seconds for run in runs) / seconds:.3f}",
    ]


def main() -> None:
    options = parser(
        __doc__,
        jobs=list(JOBS),
        percents=[25.0, 6.25, 0.0],
        seconds=["asp"],
        seeds=10,
        scalings=[0],
        worker_steps=int,
        file=Path,
    )
    given = options.parse_args()
    recorded = Recorded(given.file)
    table = new_table("job", "way", "value", "kept", "time", left=2)
    with at_most(24 * 3600), kept_for_the_next():
        for name in given.jobs:
            job = JOBS[name].lasting(given.worker_steps)
            (base,) = trained(job, [BASELINE_PERCENT], given.seeds, recorded)
            table.add_row(*row(name, "BSP", base, base))
            for second in given.seconds:
                switched = trained(job, given.percents, given.seeds, recorded, second)
                for percent, runs in zip(given.percents, switched, strict=True):
                    table.add_row(*row(name, f"{second}, {percent:g} %", runs, base))
            for scaling in filter(None, given.scalings):
                limited = job._replace(workload=replace(job.workload, largest_scaling=scaling))
                (runs,) = trained(limited, [BASELINE_PERCENT], given.seeds, recorded)
                table.add_row(*row(name, f"BSP, rate x {scaling}", runs, base))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
