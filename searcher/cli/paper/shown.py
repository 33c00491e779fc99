"""The papers' figures as tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from syncswitch.searcher.papers.tables import Row, short_conditions
from syncswitch.trainers.cli.console import echo, print_table

_CURVE_ROWS = 8


def print_figure(rows: list[Row]) -> None:
    """Prints what `figure_rows` gives of one figure."""
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
    print_table(["workers", "switch", "runs", "seconds of a switch", "% of training"], cells)


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
