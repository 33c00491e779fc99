"""`syncswitch-search paper run` and `show`: figures of the papers from runs of one's own."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from syncswitch.searcher.cli.paper.shown import print_figure
from syncswitch.searcher.papers.figures import FIGURES, PaperFigure, rows_by_figure
from syncswitch.searcher.papers.tables import Row
from syncswitch.storage.files import whole_file
from syncswitch.trainers.cli.completion import complete_workload
from syncswitch.trainers.cli.console import echo, print_json, print_note, print_table
from syncswitch.trainers.cli.options import FiniteRange, common_options, debug_option
from syncswitch.trainers.model.kept import kept_for_the_next

# As one plotly and another begins its pages.
_BEGINNINGS = (b"<html>", b"<!doctype html>")


def _parse_names(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    if value == "all":
        return tuple(FIGURES)
    one = click.Choice(list(FIGURES))
    return tuple(dict.fromkeys(one.convert(name, parameter, context) for name in value.split(",")))


def _complete_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Goes on after the last comma."""
    before, comma, start = incomplete.rpartition(",")
    names = FIGURES if comma else [*FIGURES, "all"]
    return [before + comma + name for name in names if name.startswith(start)]


_names = click.argument(
    "names",
    metavar="FIGURE[,FIGURE...]|all",
    callback=_parse_names,
    shell_complete=_complete_names,
)
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
    help="HTML file for drawings of them.",
)


@click.command("list")
@debug_option
def list_figures() -> None:
    """Lists the figures."""
    cells = [[name, one.shown_in, one.workers, one.title] for name, one in FIGURES.items()]
    print_table(["figure", "in the paper", "workers", "shows"], cells, prose="shows")


@click.command()
@_names
@_workload
@_target
@_output
@common_options
def show(
    names: tuple[str, ...],
    workload: str,
    time_to: float | None,
    output: Path | None,
    storage_url: str,
    as_json: bool,
) -> None:
    """Shows a FIGURE from the recorded runs of WORKLOAD: those of searches, sweeps and imports.

    Of several, those are shown of which there are runs.
    """
    _tell(names, rows_by_figure(storage_url, names, workload, time_to), output, as_json)


@click.command(context_settings={"ignore_unknown_options": True})
@_names
@_workload
@click.argument("options", metavar="[OPTION OF SWEEP]...", nargs=-1, type=click.UNPROCESSED)
@_target
@_output
@common_options
def run(
    names: tuple[str, ...],
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
    the paper's size. Of several figures each keeps what it is about, such as its profile. What is
    recorded counts, and the same command goes on after an interruption.
    """
    with kept_for_the_next():
        status = _swept(names, workload, options, storage_url)
    if status:
        return status
    _tell(names, rows_by_figure(storage_url, names, workload, time_to), output, as_json)
    return None


def _swept(
    names: tuple[str, ...], workload: str, options: tuple[str, ...], storage_url: str
) -> int:
    """Makes the runs; gives the exit status of the first sweep that does not end with 0."""
    from syncswitch.searcher.cli.search.sweep import sweep

    for name in names:
        figure = FIGURES[name]
        for number, words in enumerate(figure.sweeps, 1):
            _announce(name if len(names) > 1 else "", number, figure)
            chosen = together(options, words) if len(names) > 1 else [*words, *options]
            usual = [workload, "--trainer", "simulated", "--workers", figure.workers]
            arguments = [*usual, *chosen, "--storage", storage_url]
            with contextlib.redirect_stdout(io.StringIO()):
                status = sweep.main(arguments, "syncswitch-search sweep", standalone_mode=False)
            if status:
                return int(status)
    return 0


def _announce(name: str, number: int, figure: PaperFigure) -> None:
    words = [name] if name else []
    if len(figure.sweeps) > 1:
        sweep = f"sweep {number} of {len(figure.sweeps)}"
        words.append(f"{sweep}: {' '.join(figure.sweeps[number - 1])}")
    if words:
        print_note(", ".join(words))


def together(options: Sequence[str], words: Sequence[str]) -> list[str]:
    """Options of all figures without what one that trains on a real cluster has no use for."""
    if "--trainer" not in words:
        return [*options, *words]
    left, kept = iter(options), []
    for word in left:
        if word == "--profile":
            next(left, None)
        elif not word.startswith("--profile="):
            kept.append(word)
    return [*kept, *words]


def _tell(
    names: Sequence[str], found: Mapping[str, list[Row]], output: Path | None, as_json: bool
) -> None:
    if as_json:
        print_json(found if len(names) > 1 else found[names[0]])
    else:
        for number, (name, rows) in enumerate(found.items()):
            if len(names) > 1:
                echo("\n" * bool(number) + f"{name}: {FIGURES[name].title}\n")
            print_figure(rows)
    missing = [name for name in names if name not in found]
    if missing:
        print_note(f"without runs: {', '.join(missing)}; see syncswitch-search paper run --help")
    if output is not None:
        from syncswitch.searcher.papers.plots import page

        with whole_file(output, replaces=_BEGINNINGS) as file:
            file.write(page({FIGURES[name].title: rows for name, rows in found.items()}).encode())
        print_note(f"{'drawing' if len(found) == 1 else 'drawings'} written to {output}")
