"""`python -m reproduction`: the figures of the papers, from runs or from their authors' logs."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from reproduction.cost import cost
from reproduction.figures import FIGURES, PaperFigure, rows_by_figure
from reproduction.logs import write_table
from reproduction.tables import Row, short_conditions
from syncswitch.cli.completion import complete_workload
from syncswitch.cli.console import echo, print_json, print_note, print_rows
from syncswitch.cli.group import ProgramCommand, SubcommandGroup
from syncswitch.cli.options import FiniteRange, common_options, debug_option
from syncswitch.cli.search.main import main as searcher
from syncswitch.storage.files import whole_file
from syncswitch.trainers.model.kept import kept_for_the_next

EXPERIMENTS = Path(__file__).parent / "experiments.txt"
"""The commands of docs/papers.md, one a line."""


def _parse_names(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    if value == "all":
        return tuple(FIGURES)
    one = click.Choice(list(FIGURES))
    return tuple(dict.fromkeys(one.convert(name, parameter, context) for name in value.split(",")))


_names = click.argument("names", metavar="FIGURE[,FIGURE...]|all", callback=_parse_names)
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


class _Program(ProgramCommand, SubcommandGroup):
    """A program of several commands."""


@click.group(cls=_Program)
def main() -> None:
    """Makes the figures of the papers, from runs of yours or from their authors' logs."""


main.add_command(cost)


@main.command("list")
@debug_option
def list_figures() -> None:
    """Lists the figures."""
    cells = [[name, one.shown_in, one.workers, one.title] for name, one in FIGURES.items()]
    _print_table(["figure", "in the paper", "workers", "shows"], cells, prose="shows")


@main.command()
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


@main.command(context_settings={"ignore_unknown_options": True})
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
    from syncswitch.cli.search.launch.sweep import sweep

    for name in names:
        figure = FIGURES[name]
        for number, words in enumerate(figure.sweeps, 1):
            _announce(name if len(names) > 1 else "", number, figure)
            chosen = together(options, words) if len(names) > 1 else [*words, *options]
            usual = ["--trainer", "simulated", "--storage", storage_url, "--json"]
            sizes, others = sizes_in(chosen, figure.workers)
            for size in sizes:
                target: list[str] = []
                for variant in ("", *(f",{one}" for one in figure.variants)):
                    arguments = [workload + variant, *usual, *others, "--workers", size, *target]
                    said = io.StringIO()
                    with contextlib.redirect_stdout(said):
                        status = sweep.main(arguments, "sweep", standalone_mode=False)
                    if status:
                        return int(status)
                    # Variants are compared with the workload as it is.
                    reached = json.loads(said.getvalue())[0]["target_accuracy"]
                    target = ["--target-accuracy", str(reached)]
    return 0


def sizes_in(words: Sequence[str], usual: str) -> tuple[list[str], list[str]]:
    """The cluster sizes that the last `--workers N[,N...]` names, and the other words."""
    left, others = iter(words), []
    for word in left:
        if word == "--workers":
            usual = next(left, "")
        elif word.startswith("--workers="):
            usual = word.removeprefix("--workers=")
        else:
            others.append(word)
    return usual.split(","), others


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
            _print_figure(rows)
    missing = [name for name in names if name not in found]
    if missing:
        print_note(f"without runs: {', '.join(missing)}; see python -m reproduction run --help")
    if output is not None:
        from reproduction.plots import BEGINNING, page

        with whole_file(output, replaces=(BEGINNING,)) as file:
            file.write(page({FIGURES[name].title: rows for name, rows in found.items()}))
        print_note(f"{'drawing' if len(found) == 1 else 'drawings'} written to {output}")


@main.command()
@click.argument(
    "checkout", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="CHECKOUT"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("authors.csv"),
    show_default=True,
    help="File to write.",
)
@debug_option
def logs(checkout: Path, output: Path) -> None:
    """Writes a table of the runs that the authors of Sync-Switch released, for `import`.

    CHECKOUT is a checkout of their repository, cake-lab/Sync-Switch, or its folder data: logs of
    ResNet-32 on CIFAR-10 with 8 and with 16 workers, and of ResNet-50 on CIFAR-100, under the
    Apache License 2.0. Nothing in it is changed. Two folders have names that their logs contradict;
    they get the switch point that they had.
    """
    found = write_table(checkout, output)
    echo(f"{output}: {len(found.runs)} runs")
    for run in found.runs:
        if run.is_corrected:
            percent = f"{run.switch_percent:g} %"
            echo(f"- {run.folder}: its log shows a switch at {percent}, taken as that")
    for folder in found.unread:
        echo(f"- {folder}: left out, its name does not say what was run")
    echo(f"import them with:\n  syncswitch-search import {shlex.quote(str(output))}")


@main.command()
@click.option("--runs", type=click.IntRange(1), default=10, show_default=True, help="Of each kind.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("papers"),
    show_default=True,
    help="Folder for the database, and for tables and a drawing of each experiment.",
)
@click.option(
    "--logs",
    "checkout",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="CHECKOUT",
    help="Show also what the authors' own logs say, see `logs`.",
)
@debug_option
def papers(runs: int, output: Path, checkout: Path | None) -> int | None:
    """Makes all experiments of docs/papers.md; what is there already is not made again."""
    output.mkdir(parents=True, exist_ok=True)
    commands = EXPERIMENTS.read_text().splitlines()
    if checkout is not None:
        table = output / "authors.csv"
        released = write_table(checkout, table)
        commands.insert(0, f"syncswitch-search import {table}")
        for name in dict.fromkeys(run.setup.name for run in released.runs):
            commands.append(f"python -m reproduction show all {name}")
            commands.append(f"python -m reproduction cost {name} --table")
    with kept_for_the_next():
        for number, command in enumerate(commands, 1):
            print_note(f"{number} of {len(commands)}: {command}")
            status = _played(command.split(), runs, output, number)
            if status:
                return status
    return None


def _played(words: Sequence[str], runs: int, output: Path, number: int) -> int:
    """Makes an experiment; what it prints goes into a file."""
    is_figure = words[0] == "python"
    name, *rest = words[3:] if is_figure else words[1:]
    path = output / f"{number:02}-{'-'.join((name, *(Path(word).stem for word in rest[:2])))}"
    options = ["--storage", f"sqlite:///{output.resolve()}/papers.db"]
    if is_figure:
        options += ["-o", f"{path}.html"]
    if name == "sweep" or (is_figure and name == "run"):
        options += ["--runs", str(runs)]
    program = main if is_figure else searcher
    with Path(f"{path}.txt").open("w") as file, contextlib.redirect_stdout(file):
        return int(program.main([name, *rest, *options], standalone_mode=False) or 0)


_CURVE_ROWS = 8


def _print_figure(rows: list[Row]) -> None:
    if "worker_step" in rows[0]:
        _print_curves(rows)
    elif "accuracy" not in rows[0]:
        _print_switches(rows)
    else:
        _print_rows(rows)


def _print_switches(rows: list[Row]) -> None:
    cells = [
        [
            str(row["workers"]),
            row["switch"],
            str(row["runs"]),
            _interval(row["switch_seconds"], row["switch_seconds_half_width"], 4),
            _number(row["switch_percent_of_training"], ".2g"),
        ]
        for row in rows
    ]
    _print_table(["workers", "switch", "runs", "seconds of a switch", "% of training"], cells)


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
    _print_table([*columns, *extra.values()], cells, prose="under")
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
    _print_table(
        ["run of median accuracy", "workers", "worker-steps", "seconds", "accuracy"], cells
    )


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


def _print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], prose: str | None = None
) -> None:
    """Prints rows under these columns; `prose` is the one with words."""
    print_rows([list(zip(columns, row, strict=True)) for row in rows], prose=prose)
