"""Are the shares true that are stated of training commands? Generated jobs that learn.

    python -m benchmarks.command_jobs [--repeats 20] [--expected-runs 10] [--processes 2]

Each job (`command_problems`) has one baseline at first, no checkpoints and no forks, and a guard
that sees at the end of a run that its switch failed; then the run is made again with the first way
alone. Shares are those of the last answer: without a guard, and of the models that guarded
runs deliver.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.console import at_most, new_table, parser
from benchmarks.learning import GeneratedCourse
from benchmarks.problems import command_problems
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy

# Runs beyond those of any course, by which the truth is measured.
_JUDGED = range(100_000, 100_400)


@dataclass(frozen=True, slots=True)
class Figures:
    """A course of trainings of one job; shares and times are means.

    Attributes:
        job: What it is.
        percent: The switch of its answer.
        time: Time of a training, in trainings with the first way alone.
        kept: Share of the models that keep the accuracy.
        own: The same share of the first way alone.
        bare: Share of runs without a guard of the answer that keep it, as stated.
        true_bare: The same in truth.
        delivered: Share of the models of guarded runs with the answer, as stated.
        true_delivered: The same in truth.
    """

    job: str
    percent: float
    time: float
    kept: float
    own: float
    bare: float
    true_bare: float
    delivered: float
    true_delivered: float


def figures(name: str, number: int, expected_runs: int) -> Figures:
    """Learns on a job, and looks what its answer is worth."""
    job = command_problems(number)[name]
    limits = (None, None) if job.target_accuracy < 0 else (0.0, 1.0)
    strategy = AdaptiveStrategy(
        halvings=job.halvings,
        expected_runs=expected_runs,
        share_prefix=False,
        early_stop=False,
        goes_back=False,
        accuracy_range=limits,
    )
    course = GeneratedCourse(job, strategy, goes_back=False)
    course.learn(expected_runs)
    answer = course.answer()
    assert answer.promise.kept_share is not None
    assert answer.promise.delivered_share is not None
    delivered = [course.trained(answer.switch_percent, seed)[1].accuracy for seed in _JUDGED]
    return Figures(
        job=name,
        percent=answer.switch_percent,
        time=course.time / expected_runs,
        kept=statistics.fmean(map(course.is_kept, course.delivered)),
        own=job.kept_share(threshold=course.threshold),
        bare=answer.promise.kept_share,
        true_bare=job.kept_share(answer.switch_percent, course.threshold),
        delivered=answer.promise.delivered_share,
        true_delivered=statistics.fmean(map(course.is_kept, delivered)),
    )


def table(found: Sequence[Figures]) -> Table:
    """By job, the mean of all; shares in percent, as stated / in truth."""
    columns = ("job", "switch", "time", "kept %", "first way %", "bare %", "delivered %")
    made = new_table(*columns, box=SIMPLE)
    for name, group in itertools.groupby(found, lambda one: one.job):
        rows = list(group)

        def mean(column: str, rows: Sequence[Figures] = rows) -> float:
            return statistics.fmean(getattr(row, column) for row in rows)

        made.add_row(
            name,
            f"{statistics.median(row.percent for row in rows):g}",
            f"{mean('time'):.2f}",
            *(f"{100 * mean(column):.1f}" for column in ("kept", "own")),
            f"{100 * mean('bare'):.1f} / {100 * mean('true_bare'):.1f}",
            f"{100 * mean('delivered'):.1f} / {100 * mean('true_delivered'):.1f}",
        )
    return made


def main() -> None:
    options = parser(__doc__, repeats=20, expected_runs=10, processes=2).parse_args()
    names = list(command_problems(0))
    with at_most(3600), ProcessPoolExecutor(options.processes) as pool:
        tasks = [
            pool.submit(figures, name, number, options.expected_runs)
            for name in names
            for number in range(options.repeats)
        ]
        found = [task.result() for task in tasks]
    Console(width=120).print(table(found))


if __name__ == "__main__":
    main()
