"""The papers' figures and tables: which runs each needs, and what it shows of them.

`figure` gives each as a table for pandas, `plot` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from reproduction import tables
from reproduction.record_frames import frame_of_records
from reproduction.runs import FigureRun, read_runs
from reproduction.tables import compare
from syncswitch.storage.database.engine import Database, opened
from syncswitch.storage.errors import UserError

if TYPE_CHECKING:
    from reproduction.record_frames import DataFrame

Row = tables.Row

_HALVINGS = "100,50,25,12.5,6.25,3.125,0"


@dataclass(frozen=True)
class PaperFigure:
    """A figure, or several that show the same runs.

    Attributes:
        shown_in: Its places in the papers.
        title: Title.
        sweeps: Options of `syncswitch-search sweep` that make its runs, of each sweep.
        rows: Makes its table from the runs of a job.
        workers: Sizes of the cluster as the paper has it.
        variants: Other values of a field of the workload with which it compares it, such as
            `momentum_after_switch=zero`; figures without leave such runs out.
    """

    shown_in: str
    title: str
    sweeps: tuple[tuple[str, ...], ...]
    rows: Callable[[Sequence[FigureRun]], list[Row]]
    workers: str = "8"
    variants: tuple[str, ...] = ()


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
    """A figure's numbers as plain rows."""
    return rows_by_figure(database, [name], workload, target_accuracy)[name]


def rows_by_figure(
    database: Database | str,
    names: Sequence[str],
    workload: str,
    target_accuracy: float | None = None,
) -> dict[str, list[Row]]:
    """The rows of several figures by name, without those of which no run is recorded."""
    wrong = next((name for name in names if name not in FIGURES), None)
    if wrong is not None:
        raise UserError(f"there is no figure {wrong!r}; choose one of {', '.join(FIGURES)}")
    with opened(database) as read:
        runs = {
            has_variants: read_runs(read, workload, has_variants)
            for has_variants in {bool(FIGURES[name].variants) for name in names}
        }
    found = {}
    for name in names:
        of_figure = runs[bool(FIGURES[name].variants)]
        rows = FIGURES[name].rows(of_figure)
        if target_accuracy is not None:
            rows = _timed_to(of_figure, rows, target_accuracy)
        if rows:
            found[name] = rows
    if not found:
        figures = "figure" if len(names) == 1 else "figures"
        raise UserError(
            f"no run of {workload} is recorded for the {figures} {', '.join(names)}; make them"
            f" with: python -m reproduction run {','.join(names)} {workload}"
        )
    return found


def _timed_to(runs: Sequence[FigureRun], rows: list[Row], target_accuracy: float) -> list[Row]:
    """The rows with their times to another accuracy."""
    names = ("target", "reached", "seconds_to_target", "seconds_to_target_half_width", "sooner")
    timed = {_key(row): row for row in tables.plain(compare(runs, target_accuracy))}
    return [
        {**row, **{name: timed[_key(row)][name] for name in names}} if "reached" in row else row
        for row in rows
    ]


_KEY = ("workers", "cluster", "run", "under", "variant", "protocols")


def _key(row: Row) -> tuple[object, ...]:
    return tuple(row.get(name) for name in _KEY)


def _alone(*names: str) -> tuple[str, ...]:
    pairs = [f"{name},{'bsp' if name == 'asp' else 'asp'}" for name in names]
    return ("--at", "100", *(word for pair in pairs for word in ("--protocols", pair)))


_STALE = ("bsp", "ssp:3", "dssp:3-15", "dssp:3-15:unbounded", "asp")
_TIMING = ("--at", _HALVINGS)
_REAL = ("--trainer", "local", "--launcher", "processes", "--at", "50", "--target-accuracy", "0.9")
_MOMENTA = tuple(
    f"momentum_after_switch={name}" for name in ("zero", "scaled", "ramped", "additive")
)
_MODERATE = ("--at", "50", "--inject", "moderate")

FIGURES = {
    "summary": PaperFigure(
        "Table I",
        "BSP, the switch point of the paper's search, and ASP",
        (_TIMING,),
        tables.summary,
    ),
    "timing": PaperFigure(
        "Figs. 5, 10, 12", "accuracy and time by switch point", (_TIMING,), tables.timing
    ),
    "order": PaperFigure(
        "Fig. 4",
        "BSP first against ASP first",
        (("--protocols", "bsp,asp", "--protocols", "asp,bsp", "--at", "100,75,50,25"),),
        tables.order,
    ),
    "curves": PaperFigure("Figs. 2, 11", "accuracy over time", (_TIMING,), tables.curves),
    "batch": PaperFigure(
        "Fig. 8a",
        "the global batch after the switch",
        (("--at", "6.25"),),
        tables.batch,
        variants=("batch_after_switch=global",),
    ),
    "momentum": PaperFigure(
        "Fig. 8b",
        "another momentum after the switch",
        (("--at", "6.25"),),
        tables.momentum,
        variants=_MOMENTA,
    ),
    "size": PaperFigure(
        "Fig. 13",
        "accuracy and time by switch point on more workers",
        (_TIMING,),
        tables.timing,
        "8,16",
    ),
    "generality": PaperFigure(
        "Fig. 14",
        "the switch point of one cluster on another",
        (("--at", "100,50,25,12.5,6.25,3.125"),),
        tables.generality,
        "8,16",
    ),
    "stragglers": PaperFigure(
        "Figs. 15, 16",
        "online policies under moderate stragglers",
        (
            ("--at", "100,50"),
            *((*_MODERATE, "--online", name) for name in ("none", "greedy", "elastic")),
        ),
        tables.stragglers,
    ),
    "overhead": PaperFigure(
        "Table III",
        "what a switch takes, hot and by a restart, on real processes",
        tuple((*_REAL, "--switch", how) for how in ("hot", "restart")),
        tables.overhead,
        "2,4",
    ),
    "dssp": PaperFigure(
        "DSSP",
        "protocols alone where every second worker is half as fast",
        ((*_alone(*_STALE), "--profile", "heterogeneous"),),
        partial(tables.protocols, about="dssp"),
        "4",
    ),
    "ds-sync": PaperFigure(
        "DS-Sync",
        "protocols alone where one worker's link is a bottleneck",
        ((*_alone("bsp", "ds-sync:8", "ds-sync:2", "asp"), "--profile", "bottleneck"),),
        partial(tables.protocols, about="ds-sync"),
    ),
}
"""By name; all but the last two are of the Sync-Switch paper."""
