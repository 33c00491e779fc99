"""`syncswitch-search paper run` and `show`: a figure of a paper from runs of one's own."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from syncswitch.searcher.papers.figures import FIGURES, figure_rows
from syncswitch.searcher.papers.tables import short_conditions
from syncswitch.storage.files import whole_file
from syncswitch.trainers.cli.completion import complete_workload
from syncswitch.trainers.cli.console import echo, print_json, print_note, print_table
from syncswitch.trainers.cli.options import FiniteRange, common_options, debug_option

Row = dict[str, Any]

_CURVE_ROWS = 8
# As one plotly and another begins its pages.
_BEGINNINGS = (b"<html>", b"<!doctype html>")

_name = click.argument("name", metavar="FIGURE", type=click.Choice(list(FIGURES)))
_workload = click.argument("workload", metavar="WORKLOAD", shell_complete=complete_workload)
_target = click.option(
    "--time-to",
    type=FiniteRange(0, 1, min_open=True),
    metavar="ACCURACY",
    help="Accuracy to time the runs to. Default: the mean of BSP alone.",
)
_output = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="HTML file for a drawing of it.",
)


@click.command("list")
@debug_option
def list_figures() -> None:
    """Lists the figures."""
    cells = [[name, one.shown_in, one.workers, one.title] for name, one in FIGURES.items()]
    print_table(["figure", "in the paper", "workers", "shows"], cells, prose="shows")


@click.command()
@_name
@_workload
@_target
@_output
@common_options
def show(
    name: str,
    workload: str,
    time_to: float | None,
    output: Path | None,
    storage_url: str,
    as_json: bool,
) -> None:
    """Shows a FIGURE from the recorded runs of WORKLOAD: those of searches, sweeps and imports."""
    _tell(figure_rows(storage_url, name, workload, time_to), output, as_json)


@click.command(context_settings={"ignore_unknown_options": True})
@_name
@_workload
@click.argument("options", metavar="[OPTION OF SWEEP]...", nargs=-1, type=click.UNPROCESSED)
@_target
@_output
@common_options
def run(
    name: str,
    workload: str,
    options: tuple[str, ...],
    time_to: float | None,
    output: Path | None,
    storage_url: str,
    as_json: bool,
) -> int | None:
    """Makes the runs of a FIGURE that are missing, and shows it.

    The runs are those of `sweep`, whose options may follow WORKLOAD, such as `--runs 10`,
    `--workers 4` or `--trainer local`; without, five runs of each kind on a simulated cluster of
    the paper's size. What is recorded counts, and the same command goes on after an interruption.
    """
    from syncswitch.searcher.cli.search.sweep import sweep

    figure = FIGURES[name]
    for number, words in enumerate(figure.sweeps, 1):
        if len(figure.sweeps) > 1:
            print_note(f"sweep {number} of {len(figure.sweeps)}: {' '.join(words)}")
        usual = (workload, "--trainer", "simulated", "--workers", figure.workers)
        arguments = [*usual, *words, *options, "--storage", storage_url]
        with contextlib.redirect_stdout(io.StringIO()):
            status = sweep.main(arguments, "syncswitch-search sweep", standalone_mode=False)
        if status:
            return int(status)
    _tell(figure_rows(storage_url, name, workload, time_to), output, as_json)
    return None


def _tell(rows: list[Row], output: Path | None, as_json: bool) -> None:
    if as_json:
        print_json(rows)
    elif "worker_step" in rows[0]:
        _print_curves(rows)
    elif "accuracy" not in rows[0]:
        titles = [name.replace("_", " ") for name in rows[0]]
        print_table(titles, [[_cell(value) for value in row.values()] for row in rows])
    else:
        _print_rows(rows)
    if output is not None:
        from syncswitch.searcher.papers.plots import plot

        page = plot(rows).to_html(include_plotlyjs=True, full_html=True)
        with whole_file(output, replaces=_BEGINNINGS) as file:
            file.write(page.encode())
        print_note(f"drawing written to {output}")


def _print_rows(rows: list[Row]) -> None:
    columns = ["run", "runs", "accuracy", "points", "seconds", "faster", "to target", "sooner"]
    known = {
        "points_above_asp": "above ASP",
        "times_the_time_of_asp": "/ ASP",
        "policy_of": "policy of",
    }
    extra = {name: title for name, title in known.items() if name in rows[0]}
    rows = [
        {
            **row,
            "under": short_conditions(row["under"]),
            "variant": row["variant"].partition("=")[2],
        }
        for row in rows
    ]
    for name in ("workers", "cluster", "under", "variant"):
        if len({row[name] for row in rows}) > 1:
            extra[name] = name
    cells = [
        [
            row["run"],
            f"{row['runs']}" + (f", {row['diverged']} div." if row["diverged"] else ""),
            _interval(row["accuracy"], row["accuracy_half_width"], 4),
            _number(row["points"], "+.2f"),
            _number(row["seconds"], ".1f"),
            _number(row["times_as_fast"], ".2f"),
            _interval(row["seconds_to_target"], row["seconds_to_target_half_width"], 1)
            + f" ({row['reached']}/{row['runs']})",
            _number(row["sooner"], ".2f"),
            *(_cell(row[name], ".2f") for name in extra),
        ]
        for row in rows
    ]
    print_table([*columns, *extra.values()], cells, prose="under")
    targets = sorted({row["target"] for row in rows if row["target"] is not None})
    if targets:
        words = ", ".join(dict.fromkeys(f"{target:.4f}" for target in targets))
        echo(
            f"\nTo target: seconds until a test says {words} or more, and how many runs got there."
            " Faster, sooner\nand points of accuracy are against BSP alone on the same cluster."
            " ± is a 95 % interval; div.: diverged."
        )


def _print_curves(rows: list[Row]) -> None:
    kinds = dict.fromkeys((row["workers"], row["cluster"], row["run"]) for row in rows)
    cells = []
    for kind in kinds:
        curve = [row for row in rows if (row["workers"], row["cluster"], row["run"]) == kind]
        for test in _thinned(curve):
            seconds, accuracy = f"{test['seconds']:.1f}", f"{test['accuracy']:.4f}"
            cells.append([kind[2], str(kind[0]), str(test["worker_step"]), seconds, accuracy])
    print_table(["run of median accuracy", "workers", "worker-steps", "seconds", "accuracy"], cells)


def _thinned(curve: Sequence[Row]) -> list[Row]:
    last = len(curve) - 1
    places = {round(last * part / (_CURVE_ROWS - 1)) for part in range(_CURVE_ROWS)}
    return [curve[place] for place in sorted(places)]


def _cell(value: object, form: str = ".3g") -> str:
    return _number(value, form) if isinstance(value, float | None) else str(value)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _interval(value: float | None, half: float | None, digits: int) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")
