"""What a guard sees without a target: recorded first trainings of jobs that nobody has measured.

    python -m benchmarks.guard [--jobs FOLDER] [--momentum-after-switch own]
        [--panel panel.jsonl] [--lost 3] [--percents 12.5 6.25 3.125 1.5625 0]

It knows the tests of its run, and nothing of the job. `--panel` is a file of `benchmarks.panel`,
whose jobs have an optimizer of Keras. A run is kept if it ends at most beta below the mean of BSP
alone, and lost if more than `--lost` beta. False alarms are those in runs that are kept, at any
moment; a lost run is noticed in time if that is in the first half of all worker-steps. Time is that
of the training by that of BSP alone, with what alarms cost.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.console import at_most, new_table, parser
from benchmarks.problems import BASELINE_PERCENT, BETA
from benchmarks.recorded_jobs import JOBS, GuardedJob, guarded_jobs, parsed
from syncswitch.storage.records.guard import LOST, Band, later_switch_points

_BAND = Band(None, BETA)


@dataclass(frozen=True, slots=True)
class Watched:
    """One run, as the guard saw it.

    Attributes:
        lost: Thresholds by which it ends below the mean of BSP alone, without a guard.
        alarmed_at: Share of all worker-steps at which it was sent back; None if it was not.
        bare: Time of the run without a guard, and whether its model keeps the accuracy.
        guarded: The same with a guard.
    """

    job: str
    percent: float
    lost: float
    alarmed_at: float | None
    bare: tuple[float, bool]
    guarded: tuple[float, bool]


def watched(job: GuardedJob, percent: float, seed: int) -> Watched:
    """Trains once more what was recorded, with a guard that has no target."""
    again = later_switch_points(percent, job.job.momentum_after_switch)
    later = [one for one in again if one in job.grid]
    bare, guarded = (job.train(percent, seed, band, later) for band in (None, _BAND))
    accuracies, place = job.job.accuracies, job.job.percents.index(percent)
    target = accuracies[:, job.job.percents.index(BASELINE_PERCENT)].mean()
    seconds = job.alarm_seconds(percent, seed, _BAND)
    alarmed_at = None
    if seconds is not None:
        number = int(np.searchsorted(job.clock[seed, place], seconds))
        alarmed_at = job.steps[min(number, len(job.steps) - 1)] / job.steps[-1]
    return Watched(
        job.job.name,
        percent,
        float(target - accuracies[seed, place]) / BETA,
        alarmed_at,
        (bare.time, bare.kept),
        (guarded.time, guarded.kept),
    )


def shares(
    runs: Sequence[Watched], thresholds: float = LOST
) -> tuple[int, float, int, float, float]:
    """Runs that are kept, alarms among them; runs that are lost, noticed by their half, and at all.

    A share of no runs is NaN.
    """
    kept = [one for one in runs if one.bare[1]]
    lost = [one for one in runs if one.lost > thresholds]
    by_half = [one.alarmed_at is not None and one.alarmed_at <= 0.5 for one in lost]
    return (
        len(kept),
        _share(one.alarmed_at is not None for one in kept),
        len(lost),
        _share(by_half),
        _share(one.alarmed_at is not None for one in lost),
    )


def _share(values: Iterable[bool]) -> float:
    found = list(values)
    return statistics.fmean(found) if found else float("nan")


def table(groups: dict[str, list[Watched]], thresholds: float) -> Table:
    """A row for each group of runs; shares in percent."""
    columns = ("kept", "false %", "lost", "in time %", "noticed %")
    made = new_table("", *columns, "bare", "kept %", "guarded", "kept %", box=SIMPLE)
    for name, runs in groups.items():
        kept, false, lost, in_time, noticed = shares(runs, thresholds)
        cells = [f"{kept}", _percent(false), f"{lost}", _percent(in_time), _percent(noticed)]
        for results in ([one.bare for one in runs], [one.guarded for one in runs]):
            cells.append(f"{statistics.fmean(time for time, _ in results):.3f}")
            cells.append(_percent(_share(is_kept for _, is_kept in results)))
        made.add_row(name, *cells)
    return made


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{100 * share:.1f}"


def main() -> None:
    percents = [12.5, 6.25, 3.125, 1.5625, 0.0]
    options = parsed(parser(__doc__, jobs=JOBS, panel=Path, lost=LOST, percents=percents))
    if options.panel:
        # It loads TensorFlow, which recorded jobs do without.
        from benchmarks.panel import jobs_to_replay

        jobs = jobs_to_replay(options.panel, options.percents)
    else:
        jobs = guarded_jobs(options.jobs, options.momentum_after_switch)
    if not jobs:
        raise SystemExit(f"{options.panel} has no job with all of these percents, and with BSP")
    with at_most(1800):
        runs = [
            watched(job, percent, seed)
            for percent in options.percents
            for job in jobs
            for seed in range(len(job.curves))
        ]
    by_percent = {
        f"{percent:g} %": [one for one in runs if one.percent == percent]
        for percent in options.percents
    }
    by_job = {job.job.name: [one for one in runs if one.job == job.job.name] for job in jobs}
    console = Console(width=120)
    console.print(table({**by_percent, "all": runs}, options.lost))
    console.print(table(by_job, options.lost))


if __name__ == "__main__":
    main()
