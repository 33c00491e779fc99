"""Do later runs keep the accuracy? Searches on recorded jobs, judged by what users get.

    python -m benchmarks.trust [--jobs FOLDER] [--momentum-after-switch own] [--searches 100]
        [--expected-runs 30] [--processes 2]

Every strategy searches on every recorded job, each time with seeds dealt anew; then it is looked up
how many of all recorded runs keep the accuracy with its answer. `trust_problems` says what the
jobs are.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.console import at_most, new_table, parser
from benchmarks.contenders import contenders
from benchmarks.problems import BASELINE_PERCENT
from benchmarks.recorded_jobs import JOBS, TrustJob, parsed, trust_jobs

_SHOWN = (
    "adaptive",
    "adaptive, no guard",
    "paper 5x5",
    "grid, 5 runs each",
    "Optuna TPE, means",
    "Optuna GP, means",
)
_SLOW_SEARCHES = 10
_CHUNK = 10
_LEAST_IN_A_ROW = 100


@dataclass(frozen=True, slots=True)
class Kept:
    """One search, judged by the later runs with its answer.

    Attributes:
        strategy: Its name.
        kept: Share of the later runs that keep the accuracy.
        baseline_kept: The same share for BSP alone.
        is_good: Whether the first share is 95 %, or at most five points below the second.
        cost: Cost of the search, in trainings with BSP alone.
        time: Time of a later run in the same unit, each that fails more often than BSP's own
            repeated with BSP.
        stated: The share that the strategy expected; None where it says nothing.
    """

    strategy: str
    kept: float
    baseline_kept: float
    is_good: bool
    cost: float
    time: float
    stated: float | None


def judged_searches(job: TrustJob, numbers: Iterable[int]) -> list[Kept]:
    """All strategies on a job, once for each number."""
    found = []
    for contender in contenders():
        if not set(contender.names) & set(_SHOWN):
            continue
        for number in itertools.takewhile(
            lambda n, slow=contender.is_slow: not slow or n < _SLOW_SEARCHES, numbers
        ):
            problem = job.problem(number)
            for name, search in zip(contender.names, contender.search(problem, False), strict=True):
                if name in _SHOWN:
                    cost = search.seconds / problem.first_seconds
                    found.append(_judged(name, job, search.switch_percent, cost, search.kept_share))
    return found


def _judged(
    strategy: str, job: TrustJob, percent: float, cost: float, stated: float | None
) -> Kept:
    kept, baseline_kept = job.kept_share(percent), job.kept_share(BASELINE_PERCENT)
    return Kept(
        strategy=strategy,
        kept=kept,
        baseline_kept=baseline_kept,
        is_good=job.is_good(percent),
        cost=cost,
        time=job.time(percent) + max(0.0, baseline_kept - kept),
        stated=stated,
    )


def knowing_the_truth(job: TrustJob) -> Kept:
    """The best answer, for nothing."""
    return _judged("knows the truth", job, job.problem(0).best_percent, 0.0, None)


def tables(found: Sequence[Kept], expected_runs: int) -> Iterator[Table]:
    """The benefit for users by strategy, and stated shares against true ones."""
    table = new_table(
        "strategy", "searches", "cost", "kept %", "BSP %", "good %", "time", "all in", box=SIMPLE
    )
    for strategy in (*_SHOWN, "knows the truth"):
        rows = [one for one in found if one.strategy == strategy]
        if rows:
            cost, time = (
                statistics.fmean(getattr(r, name) for r in rows) for name in ("cost", "time")
            )
            table.add_row(
                strategy,
                str(len(rows)),
                f"{cost:.2f}",
                *(
                    f"{100 * statistics.fmean(getattr(row, name) for row in rows):.1f}"
                    for name in ("kept", "baseline_kept", "is_good")
                ),
                f"{time:.3f}",
                f"{time + cost / expected_runs:.3f}",
            )
    yield table
    yield calibration((one.stated, one.kept) for one in found if one.stated is not None)


def calibration(shares: Iterable[tuple[float, float]]) -> Table:
    """Shares of kept runs as stated and in truth, by what was stated.

    In parts of a tenth, the last ones finer; those with few answers are left out.
    """
    table = new_table("stated %", "answers", "stated, mean %", "true %", box=SIMPLE)
    edges = (0.0, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 1.01)
    known = list(shares)
    for low, high in itertools.pairwise(edges):
        rows = [(stated, true) for stated, true in known if low <= stated < high]
        if len(rows) >= _LEAST_IN_A_ROW:
            means = (100 * statistics.fmean(column) for column in zip(*rows, strict=True))
            table.add_row(
                f"{100 * low:g} to {100 * min(high, 1):g}",
                str(len(rows)),
                *(f"{mean:.1f}" for mean in means),
            )
    return table


def main() -> None:
    options = parsed(parser(__doc__, jobs=JOBS, searches=100, expected_runs=30, processes=2))
    console = Console(width=110)
    jobs = trust_jobs(options.jobs, options.momentum_after_switch)
    numbers = range(options.searches)
    parts = [numbers[i : i + _CHUNK] for i in range(0, len(numbers), _CHUNK)]
    with at_most(3600), ProcessPoolExecutor(options.processes) as pool:
        tasks = [pool.submit(judged_searches, job, part) for job in jobs for part in parts]
        found = [one for task in tasks for one in task.result()]
    found += [knowing_the_truth(job) for job in jobs]
    console.print(
        f"{options.searches} searches of each strategy on each of {len(jobs)} recorded jobs."
        " Cost and time in trainings with BSP alone; time: of a later run, with each run that"
        " fails beyond BSP's own repeated; all in: with the cost of the search spread over"
        f" {options.expected_runs} uses. Good: the answer keeps the accuracy in 95 % of later runs,"
        " or at most five points less often than BSP."
    )
    for table in tables(found, options.expected_runs):
        console.print(table)


if __name__ == "__main__":
    main()
