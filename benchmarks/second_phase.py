"""The second phase: how often runs keep BSP's accuracy with each worker's own momentum.

    python -m benchmarks.second_phase [--jobs digits:8 ...] [--rules own same dc:same] [--seeds 20]
        [--percents 50 25 ...] [--cluster paper|threads|processes] [--file trainings.jsonl]

Runs keep it that end at most 0.01 below the mean of BSP. Simulated with the profile of the paper's
cluster, or another of `benchmarks.trainings`, or on this machine; the staleness stands beside. What
is in the file is not trained again, so that a benchmark that was cut goes on.

A job is a name and a number of workers: `digits`, `hot-breast-cancer`, `breast-cancer`, `clicks`,
`transformer` (AdamW), `batchnorm`, `digits-adam`, `breast-cancer-adam` or `batchnorm-adamw`. A rule
is a value of `momentum_after_switch`; `dc:` before one that shares it adds DC-ASGD, on the
simulated cluster. It may also be another second protocol, such as `local-sgd:8:zeroed` or
`qsr:8:RATE`, with the highest rate of a worker of the job. To the accuracy: the share of BSP's time
after which an evaluation first shows BSP's mean less 0.01, in the median of the runs that ever do.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.console import at_most, new_table, parser
from benchmarks.trainings import (
    ADAM,
    CLUSTERS,
    REFERENCES,
    Choice,
    JobTrainings,
    Recorded,
    Training,
    shorter,
)
from syncswitch.trainers.job.hyperparameters import highest_rate
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.protocols import PROTOCOLS

JOBS = [
    *("digits:8", "digits:16", "hot-breast-cancer:8", "hot-breast-cancer:16"),
    *("breast-cancer:8", "clicks:8", "transformer:8", "batchnorm:8"),
]
PERCENTS = [50.0, 25.0, 12.5, 6.25, 3.125, 1.5625, 0.0]
THRESHOLD = 0.01


def ruled(reference: str, rule: str, workers: int) -> tuple[str, str, bool]:
    """Returns the workload and the second protocol of a rule, and whether it compensates."""
    if rule.partition(":")[0] in PROTOCOLS:
        if "RATE" in rule:
            rule = rule.replace("RATE", f"{highest_rate(load_workload(reference), workers):g}")
        return reference, rule, False
    compensated, _, momentum = rule.rpartition(":")
    return f"{reference},momentum_after_switch={momentum}", "asp", bool(compensated)


def trained(
    job: str, rule: str, percents: Sequence[float], *, seeds: int, cluster: str, length: str,
    recorded: Recorded,
) -> list[list[Training]]:  # fmt: skip
    """Returns all runs of a job by a rule, by switch point."""
    name, _, workers = job.partition(":")
    reference, second, compensates = ruled((REFERENCES | ADAM)[name] + length, rule, int(workers))
    with JobTrainings(reference, int(workers), cluster, recorded) as trainings:
        choices = [Choice(("bsp", second), percent) for percent in percents]
        return [trainings.of(one, seeds, compensates) for one in choices]


def row(
    job: str, rule: str, percent: float, runs: Sequence[Training], base: Sequence[Training]
) -> list[Any]:
    """Figures of the runs at one switch point, beside those of BSP."""
    least = statistics.fmean(_accuracy(run) for run in base) - THRESHOLD - 1e-9
    seconds = statistics.fmean(run.seconds for run in base)
    kept = [run for run in runs if _accuracy(run) >= least]
    reached = [
        next((at for _, at, accuracy in run.tests if accuracy >= least), None) for run in runs
    ]
    known = [at for at in reached if at is not None]
    return [
        job,
        rule,
        f"{percent:g}",
        f"{len(kept)} of {len(runs)}",
        f"{statistics.fmean(map(_accuracy, runs)):.4f}",
        f"{statistics.fmean(run.seconds for run in runs) / seconds:.3f}",
        f"{statistics.median(known) / seconds:.3f} ({len(known)})" if known else "-",
        f"{statistics.fmean(run.mean_staleness for run in runs):.1f}",
    ]


def _accuracy(run: Training) -> float:
    return 0.0 if run.diverged else run.accuracy


def main() -> None:
    options = parser(
        __doc__,
        jobs=JOBS,
        rules=["own", "same"],
        percents=PERCENTS,
        seeds=20,
        worker_steps=int,
        cluster="paper",
        file=Path,
    )
    given = options.parse_args()
    if "dc:own" in given.rules or (given.cluster not in CLUSTERS and "dc:" in "".join(given.rules)):
        options.error("dc: corrects shared momentum, and only on a simulated cluster")
    length = shorter(given.worker_steps, interval=given.worker_steps)
    recorded = Recorded(given.file)
    columns = ("job", "rule", "switch", "kept", "accuracy", "time", "to accuracy", "staleness")
    with at_most(24 * 3600), kept_for_the_next():
        for job in given.jobs:
            table = new_table(*columns, left=2)
            make = partial(
                trained,
                job,
                seeds=given.seeds,
                cluster=given.cluster,
                length=length,
                recorded=recorded,
            )
            (base,) = make("own", [100])
            table.add_row(*row(job, "-", 100, base, base))
            for rule in given.rules:
                by_percent = make(rule, given.percents)
                for percent, runs in zip(given.percents, by_percent, strict=True):
                    table.add_row(*row(job, rule, percent, runs, base))
            Console(width=110).print(table)


if __name__ == "__main__":
    main()
