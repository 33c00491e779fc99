"""Which one for my job? All ways of training and of searching, side by side.

    python -m benchmarks.which_one [--file trainings.jsonl] [--seeds 10] [--repeats 20]
        [--clusters paper equal straggler slow-link] [--jobs digits ...] [--expected-runs 1 3 10 30]
        [--from-nothing]

Each training is made once, on the simulated cluster, and kept in the file, so that a run that was
cut goes on. Searches and learning are replayed from the trainings with a switch from BSP to ASP
and a momentum for each worker, `--repeats` times with seeds dealt anew; see `benchmarks.learning`.
Where most first trainings choose another second phase, learning from nothing is replayed from the
trainings with that one. Those at the first switch point are first trainings, which choose.
`--from-nothing` has this row alone.

Kept: the share of the models that end at most 0.01 below the mean of BSP. Time: of so many
trainings, relative to as many with BSP, the search included; each model that misses the accuracy
beyond BSP's own share is trained again with BSP.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.choices import GRID, SWITCHED, WORKERS, fixed_choices
from benchmarks.console import at_most, new_table, parser
from benchmarks.learning import Figures, figures
from benchmarks.problems import BETA
from benchmarks.recorded_jobs import GuardedJob
from benchmarks.trainings import (
    CLUSTERS,
    REFERENCES,
    JobTrainings,
    Recorded,
    Training,
    guarded_job,
    identity_of,
    shorter,
)
from syncswitch.searcher.strategies.baseline import ROUNDING
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.model.kept import kept_for_the_next

RULES = {
    "always 6.25 % and own momentum": "always 6.25 %",
    "the paper's search": "paper's search",
    "Optuna TPE": "Optuna TPE",
    "syncswitch, from nothing": "learning",
    "syncswitch, with a search": "search, then learning",
}
"""The rules of `benchmarks.learning`, by the names of their rows."""

FROM_NOTHING = "syncswitch, from nothing"
FIRST_PERCENT = 6.25
"""Where a first training switches."""

SEARCHED = [*RULES][1:]
"""Those that find something out."""

GUARDED = ("learning", "search, then learning")
"""Those whose trainings are guarded, by their names there."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a choice comes to: the share of kept models, and the time by number of trainings."""

    name: str
    kept: float
    times: dict[int, float]


def fixed_row(
    name: str, runs: Sequence[Training], bsp: Sequence[Training], expected_runs: list[int]
) -> Row:
    """Returns the figures of a way of training that nobody has searched for."""
    kept, own = _kept(runs, bsp), _kept(bsp, bsp)
    seconds, base = (statistics.fmean(one.seconds for one in them) for them in (runs, bsp))
    time = seconds / base + max(0.0, own - kept)
    return Row(name, kept, dict.fromkeys(expected_runs, time))


def _kept(runs: Sequence[Training], bsp: Sequence[Training]) -> float:
    least = statistics.fmean(one.accuracy for one in bsp) - BETA - ROUNDING
    return statistics.fmean(not one.diverged and one.accuracy >= least for one in runs)


def rule_row(name: str, job: GuardedJob, repeats: int, expected_runs: list[int]) -> Row:
    """Returns the figures of a rule that searches or learns; kept of all its trainings."""
    found = {
        number: [figures(job, RULES[name], repeat, number) for repeat in range(repeats)]
        for number in expected_runs
    }
    trained = [(one.kept, one.expected_runs) for them in found.values() for one in them]
    kept = sum(share * count for share, count in trained) / sum(count for _, count in trained)
    times = {number: statistics.fmean(map(_time_all_in, them)) for number, them in found.items()}
    return Row(name, kept, times)


def _time_all_in(one: Figures) -> float:
    """The time of a course, in which that of rules without a guard already has the lost models."""
    lost = one.baseline_kept - one.kept if one.rule in GUARDED else 0.0
    return one.time + max(0.0, lost)


def rows_of(
    job: str, cluster: str, recorded: Recorded, length: str, seeds: int, repeats: int,
    expected_runs: list[int], *, is_alone: bool = False,
) -> list[Row]:  # fmt: skip
    """Makes what trainings are missing, and returns all rows of a job on a cluster."""
    # Of the papers' jobs as well.
    reference = f"{REFERENCES[job]},momentum_after_switch=own{length}"
    choices = fixed_choices(load_workload(reference))
    with JobTrainings(reference, WORKERS, cluster, recorded) as trainings:
        from_nothing = _of_first_trainings(reference, job, cluster, trainings, seeds)
        if is_alone:
            return [rule_row(FROM_NOTHING, from_nothing, repeats, expected_runs)]
        switched = [trainings.of(choice, seeds) for choice in SWITCHED]
        rows = [
            fixed_row(name, trainings.of(one, seeds), switched[0], expected_runs)
            for name, one in choices.items()
        ]
    guarded = guarded_job(identity_of(reference, WORKERS, cluster), job, GRID, switched)
    jobs = dict.fromkeys(RULES, guarded) | {FROM_NOTHING: from_nothing}
    return rows + [rule_row(name, jobs[name], repeats, expected_runs) for name in RULES]


def _of_first_trainings(
    reference: str, job: str, cluster: str, trainings: JobTrainings, seeds: int
) -> GuardedJob:
    """The trainings that follow a first one, with the second phase that most of these choose."""
    looks = trainings.first(FIRST_PERCENT, seeds)
    pair = "bsp", statistics.mode(one.second_protocol for one in looks)
    chosen = [trainings.of(replace(choice, pair=pair), seeds) for choice in SWITCHED[1:]]
    by_percent = [trainings.of(SWITCHED[0], seeds), *chosen]
    by_percent[GRID.index(FIRST_PERCENT)] = looks
    return guarded_job(identity_of(reference, WORKERS, cluster, pair), job, GRID, by_percent)


def table(title: str, by_job: dict[str, list[Row]], expected_runs: list[int]) -> Table:
    """Kept share and times of each row, by job; the least time of each is marked."""
    made = new_table("", *by_job, box=SIMPLE, title=title)
    names = list(dict.fromkeys(row.name for rows in by_job.values() for row in rows))
    least = {
        job: [min(row.times[number] for row in rows) for number in expected_runs]
        for job, rows in by_job.items()
    }
    for name in names:
        cells = [
            next((_cell(row, least[job]) for row in rows if row.name == name), "-")
            for job, rows in by_job.items()
        ]
        made.add_row(name, *cells)
    return made


def _cell(row: Row, least: Sequence[float]) -> str:
    times = list(row.times.values())
    marked = [
        f"{time:.2f}{'*' if time <= best + 0.005 else ''}"
        for time, best in zip(times, least, strict=True)
    ]
    is_same = len(set(times)) == 1
    return f"{100 * row.kept:.0f} %: {marked[-1] if is_same else ' '.join(marked)}"


def guesses(by_case: dict[str, list[Row]], number: int) -> Table:
    """What each choice costs over the best one of each case that knows the future, at `number`."""
    made = new_table("always", "mean", "worst", "where", box=SIMPLE)
    best = {
        case: min(row.times[number] for row in rows if row.name not in SEARCHED)
        for case, rows in by_case.items()
    }
    found = []
    for name in dict.fromkeys(row.name for rows in by_case.values() for row in rows):
        over = {
            case: row.times[number] / best[case]
            for case, rows in by_case.items()
            for row in rows
            if row.name == name
        }
        found.append((statistics.fmean(over.values()), name, over))
    for mean, name, over in sorted(found, key=lambda one: one[:2]):
        worst = max(over, key=lambda case: over[case])
        is_all = len(over) == len(by_case)
        shown = name if is_all else f"{name} ({len(over)} of {len(by_case)})"
        made.add_row(shown, f"{mean:.2f}", f"{over[worst]:.2f}", worst)
    return made


def second_best(by_case: dict[str, list[Row]], number: int) -> Table:
    """The best and the second-best choice that needs no search, and syncswitch, of each case."""
    own = FROM_NOTHING
    made = new_table("", "best guess", "time", "second", "time", own, box=SIMPLE)
    for case, rows in by_case.items():
        fixed = sorted(
            (row for row in rows if row.name not in SEARCHED), key=lambda row: row.times[number]
        )
        first, second = fixed[:2]
        ours = next(row for row in rows if row.name == own)
        shown = [value for row in (first, second) for value in (row.name, _time(row, number))]
        made.add_row(case, *shown, _time(ours, number))
    return made


def _time(row: Row, number: int) -> str:
    return f"{row.times[number]:.2f} ({100 * row.kept:.0f} %)"


def main() -> None:
    arguments = parser(
        __doc__,
        file=Path("trainings.jsonl"),
        clusters=list(CLUSTERS),
        jobs=list(REFERENCES),
        seeds=10,
        repeats=20,
        expected_runs=[1, 3, 10, 30],
        worker_steps=int,
        from_nothing=False,
    )
    given = arguments.parse_args()
    for kind, named, known in (
        ("clusters", given.clusters, CLUSTERS),
        ("jobs", given.jobs, REFERENCES),
    ):
        if unknown := set(named) - set(known):
            arguments.error(f"--{kind} {' '.join(unknown)}: give some of {' '.join(known)}")
    length = shorter(given.worker_steps, interval=WORKERS)
    recorded, console = Recorded(given.file), Console(width=240)
    by_case: dict[str, list[Row]] = {}
    with at_most(48 * 3600), kept_for_the_next():
        for cluster in given.clusters:
            by_job = {}
            for job in given.jobs:
                by_job[job] = rows_of(
                    job, cluster, recorded, length, given.seeds, given.repeats,
                    given.expected_runs, is_alone=given.from_nothing,
                )  # fmt: skip
            title = (
                f"{cluster}: kept, and time of {', '.join(map(str, given.expected_runs))} trainings"
            )
            console.print(table(title, by_job, given.expected_runs))
            by_case |= {f"{job} on {cluster}": rows for job, rows in by_job.items()}
    if given.from_nothing:
        return
    number = given.expected_runs[-1]
    console.print(f"All in, of {number} trainings, by the best that needs no search in each case:")
    console.print(guesses(by_case, number))
    console.print(second_best(by_case, number))


if __name__ == "__main__":
    main()
