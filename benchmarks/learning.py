"""What guard, revision and learning bring: trainings of recorded jobs, one after the other.

    python -m benchmarks.learning [--jobs FOLDER] [--repeats 20] [--uses 10 30]

Every rule trains every recorded job so many times over, each repeat with seeds dealt anew. Time is
that of all trainings, with the search and the failed runs, over the same number of trainings with
BSP alone; without a guard each run that fails more often than BSP's own is made again with BSP. The
paper's search and Optuna's TPE (`rivals` says how they search) have no guard.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.console import new_table, parser
from benchmarks.contenders import REFERENCE
from benchmarks.learning_jobs import GuardedJob, guarded_jobs
from benchmarks.learning_rules import (
    Course,
    Rule,
    best_known,
    bsp_alone,
    learn,
    rival_then_use,
    search_then_use,
)
from benchmarks.limit import at_most
from benchmarks.problems import BASELINE_PERCENT
from benchmarks.trust_problems import JOBS

RULES: dict[str, Rule] = {
    "BSP alone": bsp_alone,
    "paper's search": functools.partial(rival_then_use, name=REFERENCE),
    "Optuna TPE": functools.partial(rival_then_use, name="Optuna TPE, means"),
    "search, bare switch": functools.partial(search_then_use, guarded=False),
    "search, guarded": search_then_use,
    "search, then learning": functools.partial(search_then_use, learns=True),
    "learning": learn,
    "best known": best_known,
}


@dataclass(frozen=True, slots=True)
class Figures:
    """One course, in figures.

    Attributes:
        time: Of a training, all in, by one with BSP alone.
        kept: Share of the models that keep the accuracy.
        baseline_kept: The same of all recorded runs of BSP.
        search_cost: In trainings with BSP alone.
        answered_at: Uses until there was a policy.
        alarms: Of all.
        good_uses: Trainings with a good switch before W.
        false_alarms: Of those of good switch points that keep the accuracy.
        revisions: Versions of the policy that were left for another.
        shares: Of the last answer: what it states of runs with its bare switch, what all recorded
            seeds show; and both of the delivered models. None where nobody answered.
    """

    rule: str
    job: str
    uses: int
    time: float
    kept: float
    baseline_kept: float
    search_cost: float
    answered_at: int
    alarms: int
    good_uses: int
    false_alarms: int
    revisions: int
    shares: tuple[float, float, float, float] | None


def figures(job: GuardedJob, rule: str, number: int, uses: int) -> Figures:
    """Trains once over, and counts."""
    course = RULES[rule](job, number, uses)
    is_good = {percent: job.job.is_good(percent) for percent in job.grid[:-1]}
    good = [use for use in course.uses if is_good.get(use.observed.switch_percent, False)]
    return Figures(
        rule=rule,
        job=job.job.name,
        uses=uses,
        time=_time(course, job) + course.search_cost / uses,
        kept=statistics.fmean(use.kept for use in course.uses),
        baseline_kept=job.job.kept_share(BASELINE_PERCENT),
        search_cost=course.search_cost,
        answered_at=uses if course.answered_at is None else course.answered_at,
        good_uses=len(good),
        alarms=sum(len(use.failed) for use in course.uses),
        false_alarms=sum(use.false_alarms for use in good),
        revisions=len(course.revisions),
        shares=_shares(course),
    )


def _shares(course: Course) -> tuple[float, float, float, float] | None:
    answer = course.answer
    if answer is None or answer.kept_share is None or answer.delivered_share is None:
        return None
    bare = course.job.job.kept_share(answer.switch_percent)
    delivered = course.delivered_share(answer.switch_percent)
    return answer.kept_share, bare, answer.delivered_share, delivered


def _time(course: Course, job: GuardedJob) -> float:
    time = statistics.fmean(use.time for use in course.uses)
    if course.strategy.guarded:
        return time
    shares = (job.job.kept_share(use.observed.switch_percent) for use in course.uses)
    return time + max(0.0, job.job.kept_share(BASELINE_PERCENT) - statistics.fmean(shares))


def table(found: Sequence[Figures]) -> Table:
    """By rule, the mean of all; shares in percent."""
    columns = ("rule", "time", "kept %", "BSP %", "search", "policy after", "alarms %", "false %")
    made = new_table(*columns, "left", "bare %", "delivered %", box=SIMPLE)
    for rule in RULES:
        rows = [one for one in found if one.rule == rule]
        if rows:
            uses, good = sum(one.uses for one in rows), sum(one.good_uses for one in rows) or 1
            made.add_row(
                rule,
                f"{statistics.fmean(one.time for one in rows):.3f}",
                f"{100 * statistics.fmean(one.kept for one in rows):.1f}",
                f"{100 * statistics.fmean(one.baseline_kept for one in rows):.1f}",
                f"{statistics.fmean(one.search_cost for one in rows):.1f}",
                f"{statistics.fmean(one.answered_at for one in rows):.1f}",
                f"{100 * sum(one.alarms for one in rows) / uses:.1f}",
                f"{100 * sum(one.false_alarms for one in rows) / good:.1f}",
                f"{statistics.fmean(one.revisions for one in rows):.2f}",
                *_stated_and_true(rows),
            )
    return made


def _stated_and_true(rows: Sequence[Figures]) -> tuple[str, str]:
    known = [one.shares for one in rows if one.shares is not None]
    if not known:
        return "", ""
    values = [100 * statistics.fmean(column) for column in zip(*known, strict=True)]
    return f"{values[0]:.1f} / {values[1]:.1f}", f"{values[2]:.1f} / {values[3]:.1f}"


def by_job(found: Sequence[Figures]) -> Table:
    """Time, and share of the models that keep the accuracy, of each job."""
    rules = list(dict.fromkeys(one.rule for one in found))
    made = new_table("job", *rules, box=SIMPLE)
    for job in dict.fromkeys(one.job for one in found):
        cells = []
        for rule in rules:
            rows = [one for one in found if (one.job, one.rule) == (job, rule)]
            time, kept = (statistics.fmean(getattr(r, name) for r in rows) for name in _SHOWN)
            cells.append(f"{time:.2f} {100 * kept:5.1f}")
        made.add_row(job, *cells)
    return made


_SHOWN = ("time", "kept")


def _options() -> argparse.Namespace:
    arguments = parser(__doc__, jobs=JOBS, repeats=20, uses=[10, 30], processes=2)
    options = arguments.parse_args()
    if not list(options.jobs.glob("*.npz")):
        arguments.error(f"--jobs {options.jobs}: no recorded jobs there; give their folder")
    return options


def main() -> None:
    """Prints the tables."""
    options, console = _options(), Console(width=140)
    jobs = guarded_jobs(options.jobs)
    with at_most(3600), ProcessPoolExecutor(options.processes) as pool:
        tasks = [
            pool.submit(figures, job, rule, number, uses)
            for uses in options.uses
            for number in range(options.repeats)
            for job in jobs
            for rule in RULES
        ]
        found = [task.result() for task in tasks]
    for uses in options.uses:
        rows = [one for one in found if one.uses == uses]
        console.print(
            f"{uses} trainings of each of {len(jobs)} recorded jobs, {options.repeats} times over."
            " Time by that of BSP alone, all in; false: alarms in runs of good switch points that"
            " would have kept the accuracy; left: versions of a policy; bare, delivered: runs with"
            " the bare switch and delivered models that keep the accuracy, as stated / in truth."
        )
        console.print(table(rows))
        console.print(by_job(rows))


if __name__ == "__main__":
    main()
