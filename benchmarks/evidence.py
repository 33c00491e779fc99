"""Trains jobs that no first guess comes from, and records the runs of README's table.

    python -m benchmarks.evidence [--jobs pairs letters ...] [--seeds 12]
        [--percents 100 50 25 12.5 6.25 3.125 0] [--file evidence.jsonl]
        [--folder benchmarks/recordings] [--worker-steps N]
    python -m benchmarks.learning --jobs benchmarks/recordings

The first switches each job from BSP to ASP at each of the points, without a guard, on its simulated
cluster (`benchmarks.evidence_jobs`), and writes a file of a few kilobytes for each job; the second
reads them. What is in `--file` is not trained again. The texts that three of the jobs read are
Python's own, so another version of Python has others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.console import at_most, new_table, parser
from benchmarks.evidence_jobs import EVIDENCE
from benchmarks.panel import identity, row, trained
from benchmarks.panel_jobs import PanelJob
from benchmarks.recorded_jobs import GuardedJob, write_job
from benchmarks.trainings import Recorded, guarded_job
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.trainers.model.kept import kept_for_the_next

FOLDER = Path(__file__).parent / "recordings"
JOBS = {job.workload.name: job for job in EVIDENCE}


def recorded_job(
    job: PanelJob, percents: Sequence[float], seeds: int, recorded: Recorded
) -> GuardedJob:
    """The runs of a job at BSP alone and each percent, made where they are missing."""
    points = tuple(sorted({BASELINE_PERCENT, *percents}, reverse=True))
    runs = list(trained(job, points, seeds, recorded))
    return guarded_job(identity(job), job.workload.name, points, runs)


def main() -> None:
    given = parser(
        __doc__,
        jobs=list(JOBS),
        seeds=12,
        percents=[100.0, 50.0, 25.0, 12.5, 6.25, 3.125, 0.0],
        file=Path,
        folder=FOLDER,
        worker_steps=int,
    ).parse_args()
    recorded, table = Recorded(given.file), new_table("job", "way", "value", "kept", "time", left=2)
    given.folder.mkdir(parents=True, exist_ok=True)
    with at_most(24 * 3600), kept_for_the_next():
        for name in given.jobs:
            job = JOBS[name].lasting(given.worker_steps)
            write_job(
                given.folder / f"{name}.npz",
                recorded_job(job, given.percents, given.seeds, recorded),
            )
            (base,) = trained(job, [BASELINE_PERCENT], given.seeds, recorded)
            switched = trained(job, given.percents, given.seeds, recorded)
            for percent, runs in zip(given.percents, switched, strict=True):
                table.add_row(*row(name, f"{job.cluster}, {percent:g} %", runs, base))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
