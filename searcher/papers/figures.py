"""The papers' figures and tables: which runs each needs, and what it shows of them.

`figure` gives each as a table for pandas, `plot` draws it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.papers.comparison import Compared, compare, mean_of, paper_answer
from syncswitch.searcher.papers.runs import FigureRun, read_runs
from syncswitch.storage.database.engine import Database, opened
from syncswitch.storage.errors import UserError
from syncswitch.storage.queries.record_frames import frame_of_records

if TYPE_CHECKING:
    from syncswitch.storage.queries.record_frames import DataFrame

Row = dict[str, Any]

_HALVINGS = "100,50,25,12.5,6.25,3.125,0"


@dataclass(frozen=True)
class PaperFigure:
    """A figure, or several that show the same runs.

    Attributes:
        shown_in: Where the papers have it.
        title: What it shows.
        sweeps: Options of `syncswitch-search sweep` that make its runs, of each sweep.
        rows: Makes its table from the runs of a job.
        workers: Sizes of the cluster as the paper has it.
    """

    shown_in: str
    title: str
    sweeps: tuple[tuple[str, ...], ...]
    rows: Callable[[Sequence[FigureRun]], list[Row]]
    workers: str = "8"


def figure(
    database: Database | str, name: str, workload: str, *, target_accuracy: float | None = None
) -> DataFrame:
    """A figure's numbers from the recorded runs of a job.

    Args:
        database: Open, or its URL.
        name: One of `FIGURES`.
        workload: Name, reference, or start of the fingerprint.
        target_accuracy: To time the runs to; None for the mean of BSP alone.

    Raises:
        UserError: There is no such figure, or no run for it.
    """
    return frame_of_records(figure_rows(database, name, workload, target_accuracy))


def figure_rows(
    database: Database | str, name: str, workload: str, target_accuracy: float | None = None
) -> list[Row]:
    """The same as plain rows."""
    if name not in FIGURES:
        raise UserError(f"there is no figure {name!r}; choose one of {', '.join(FIGURES)}")
    with opened(database) as read:
        runs = read_runs(read, workload)
    rows = [row for row in FIGURES[name].rows(runs) if row]
    if target_accuracy is not None:
        rows = _timed_to(runs, rows, target_accuracy)
    if not rows:
        raise UserError(
            f"no run of {workload} is recorded that the figure {name!r} shows; make them with:"
            f" syncswitch-search paper run {name} {workload}"
        )
    return rows


def _timed_to(runs: Sequence[FigureRun], rows: list[Row], target_accuracy: float) -> list[Row]:
    """The rows with their times to another accuracy."""
    names = ("target", "reached", "seconds_to_target", "seconds_to_target_half_width", "sooner")
    timed = {_key(row): row for row in _plain(compare(runs, target_accuracy))}
    return [
        {**row, **{name: timed[_key(row)][name] for name in names}} if "reached" in row else row
        for row in rows
    ]


def _key(row: Row) -> tuple[object, ...]:
    return tuple(row.get(name) for name in ("workers", "cluster", "run", "under", "protocols"))


def _plain(rows: Sequence[Compared]) -> list[Row]:
    return [dataclasses.asdict(row) for row in rows]


def _ordered(rows: Sequence[Compared]) -> list[Compared]:
    """By cluster, and by how much of the job is in BSP, most first."""

    def in_bsp(row: Compared) -> float:
        return row.percent if row.protocols.startswith("bsp") else 100 - row.percent

    return sorted(rows, key=lambda row: (row.workers, row.cluster, -in_bsp(row), row.run))


def summary(runs: Sequence[FigureRun]) -> list[Row]:
    """Table I: BSP, the paper's switch point, and ASP, on each cluster."""
    found: list[Row] = []
    rows = _ordered(compare(_undisturbed(runs)))
    for cluster in dict.fromkeys((row.workers, row.cluster) for row in rows):
        of_cluster = [row for row in rows if (row.workers, row.cluster) == cluster]
        asp = next((row for row in of_cluster if row.run == "ASP"), None)
        bsp = next((row for row in of_cluster if row.run == "BSP"), None)
        for row in filter(None, (bsp, paper_answer(of_cluster), asp)):
            found.append({**dataclasses.asdict(row), **_against(row, asp)})
    return found


def _against(row: Compared, asp: Compared | None) -> Row:
    """More accurate than ASP, in points, and so many times its time."""
    points = time = None
    if asp is not None and row.accuracy is not None and asp.accuracy is not None:
        points = 100 * (row.accuracy - asp.accuracy)
    if asp is not None and row.seconds and asp.seconds:
        time = row.seconds / asp.seconds
    return {"points_above_asp": points, "times_the_time_of_asp": time}


def timing(runs: Sequence[FigureRun]) -> list[Row]:
    """Accuracy, time and time to accuracy of each switch point from BSP to ASP."""
    return _plain(_ordered(compare(_of_pair(_undisturbed(runs), {("bsp", "asp")}))))


def order(runs: Sequence[FigureRun]) -> list[Row]:
    """The same for both orders of the two protocols."""
    pairs = {("bsp", "asp"), ("asp", "bsp")}
    return _plain(_ordered(compare(_of_pair(_undisturbed(runs), pairs))))


def protocols(runs: Sequence[FigureRun]) -> list[Row]:
    """Each protocol alone."""
    alone = [run for run in _undisturbed(runs) if run.alone is not None]
    return _plain(sorted(compare(alone), key=lambda row: (row.workers, row.cluster)))


def stragglers(runs: Sequence[FigureRun]) -> list[Row]:
    """Runs under injected stragglers with each online policy, beside those without any."""
    switched = [run for run in runs if "straggler:" in run.under]
    wanted = {(run.workers, run.cluster, run.name) for run in switched}
    beside = [
        run
        for run in _undisturbed(runs)
        if run.name == "BSP" or (run.workers, run.cluster, run.name) in wanted
    ]
    return _plain(_ordered(compare([*beside, *switched]))) if switched else []


def generality(runs: Sequence[FigureRun]) -> list[Row]:
    """What becomes of each cluster's switch point on every other cluster."""
    rows = compare(_of_pair(_undisturbed(runs), {("bsp", "asp")}))
    clusters = sorted({(row.workers, row.cluster) for row in rows})
    has_several = len({cluster for _, cluster in clusters}) > 1
    by_cluster = {
        one: [row for row in rows if (row.workers, row.cluster) == one] for one in clusters
    }
    found: list[Row] = []
    for origin in clusters:
        answer = paper_answer(by_cluster[origin])
        percent = 100.0 if answer is None else answer.percent
        for target in clusters:
            row = next((one for one in by_cluster[target] if one.percent == percent), None)
            if row is not None:
                name = f"{origin[0]} workers" + (f" {origin[1]}" if has_several else "")
                found.append({"policy_of": name, **dataclasses.asdict(row)})
    return found


def curves(runs: Sequence[FigureRun]) -> list[Row]:
    """Accuracy over training time of the run of median accuracy of each kind."""
    kinds: dict[tuple[object, ...], list[FigureRun]] = {}
    for run in _undisturbed(runs):
        if run.curve and run.accuracy is not None:
            kinds.setdefault((run.workers, run.cluster, run.name), []).append(run)
    found: list[Row] = []
    for (workers, cluster, name), alike in kinds.items():
        median = sorted(alike, key=lambda run: run.accuracy or 0.0)[len(alike) // 2]
        found += [
            {
                "workers": workers,
                "cluster": cluster,
                "run": name,
                "worker_step": test.worker_step,
                "seconds": test.elapsed_seconds,
                "accuracy": test.accuracy,
            }
            for test in median.curve
        ]
    return found


def overhead(runs: Sequence[FigureRun]) -> list[Row]:
    """Table III: what switches take on real clusters, hot or by a restart of the cluster."""
    kinds: dict[tuple[int, str], list[FigureRun]] = {}
    for run in runs:
        if run.alone is None and run.switch_seconds is not None and not run.cluster:
            how = "restart" if "restart" in run.under else "hot"
            kinds.setdefault((run.workers, how), []).append(run)
    return [
        {
            "workers": workers,
            "switch": how,
            "runs": len(alike),
            "switch_seconds": mean_of([run.switch_seconds for run in alike]),
            "switch_percent_of_training": mean_of(
                [100 * (run.switch_seconds or 0.0) / run.seconds for run in alike if run.seconds]
            ),
        }
        for (workers, how), alike in sorted(kinds.items())
    ]


def _undisturbed(runs: Sequence[FigureRun]) -> list[FigureRun]:
    return [run for run in runs if not run.under]


def _of_pair(runs: Sequence[FigureRun], pairs: set[tuple[str, str]]) -> list[FigureRun]:
    """Runs of these protocols; one protocol alone may have been recorded with any other."""
    names = {name for pair in pairs for name in pair}
    return [run for run in runs if run.protocols in pairs or run.alone in names]


def _alone(*names: str) -> tuple[str, ...]:
    pairs = [f"{name},{'bsp' if name == 'asp' else 'asp'}" for name in names]
    return ("--at", "100", *(word for pair in pairs for word in ("--protocols", pair)))


_STALE = ("bsp", "ssp:3", "dssp:3-15", "dssp:3-15:unbounded", "asp")
_TIMING = ("--at", _HALVINGS)
_REAL = ("--trainer", "local", "--launcher", "processes", "--at", "50", "--target-accuracy", "0.9")
_MODERATE = ("--at", "50", "--inject", "moderate")

FIGURES = {
    "summary": PaperFigure(
        "Table I", "BSP, the switch point of the paper's search, and ASP", (_TIMING,), summary
    ),
    "timing": PaperFigure(
        "Figs. 5, 10, 12", "accuracy and time by switch point", (_TIMING,), timing
    ),
    "order": PaperFigure(
        "Fig. 4",
        "BSP first against ASP first",
        (("--order", "bsp,asp", "--order", "asp,bsp", "--at", "100,75,50,25"),),
        order,
    ),
    "curves": PaperFigure("Figs. 2, 11", "accuracy over time", (_TIMING,), curves),
    "size": PaperFigure(
        "Fig. 13", "accuracy and time by switch point on more workers", (_TIMING,), timing, "8,16"
    ),
    "generality": PaperFigure(
        "Fig. 14",
        "the switch point of one cluster on another",
        (("--at", "100,50,25,12.5,6.25,3.125"),),
        generality,
        "8,16",
    ),
    "stragglers": PaperFigure(
        "Figs. 15, 16",
        "online policies under moderate stragglers",
        (
            ("--at", "100,50"),
            *((*_MODERATE, "--online", name) for name in ("none", "greedy", "elastic")),
        ),
        stragglers,
    ),
    "overhead": PaperFigure(
        "Table III",
        "what a switch takes, hot and by a restart, on real processes",
        tuple((*_REAL, "--switch", how) for how in ("hot", "restart")),
        overhead,
        "2,4",
    ),
    "dssp": PaperFigure(
        "DSSP",
        "protocols alone where every second worker is half as fast",
        ((*_alone(*_STALE), "--profile", "heterogeneous"),),
        protocols,
        "4",
    ),
    "ds-sync": PaperFigure(
        "DS-Sync",
        "protocols alone where one worker's link is a bottleneck",
        ((*_alone("bsp", "ds-sync:8", "ds-sync:2", "asp"), "--profile", "bottleneck"),),
        protocols,
    ),
}
"""By name; all but the last two are of the Sync-Switch paper."""
