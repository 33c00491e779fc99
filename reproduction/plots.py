"""Draws the papers' figures, in the style of the reports'; needs the extra `report`."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from reproduction.runs import bsp_percent
from reproduction.tables import Row, short_conditions
from syncswitch.searcher.report.drawing import FIRST, POLICY, QUIET, SECOND, Drawing, drawn, literal

if TYPE_CHECKING:
    from reproduction.record_frames import DataFrame

BEGINNING = b"<!doctype html>\n<html><!-- figures of the papers -->"

_LOOKS = (
    (FIRST, "D"),
    (SECOND, "s"),
    (POLICY, "o"),
    ("#CC79A7", "^"),
    ("#E69F00", "*"),
    ("#56B4E9", "h"),
)
_BETWEEN = ("#1B4F45", "#2A7F6F", "#5FB3A1", "#9CCFC3", "#B7A7D1", "#7E6AA8", "#4F3C7C")


def plot(table: DataFrame | Sequence[Row], title: str = "A figure of the papers") -> Drawing:
    """Draws a figure: accuracy and time of each kind of run, curves, or times of switches.

    Args:
        table: The table of `figure`, or some of its rows.
        title: Title of the drawing.

    Raises:
        UserError: matplotlib is missing.
    """
    rows = table if isinstance(table, Sequence) else _rows_of(table)
    if "switch_seconds" in rows[0]:
        return _switches(rows, title)
    return _curves(rows, title) if "worker_step" in rows[0] else _panels(rows, title)


def page(tables: Mapping[str, Sequence[Row]]) -> bytes:
    """A self-contained HTML page of drawings under their titles."""
    style = "body { font-family: system-ui, sans-serif; max-width: 40rem; margin: 2rem auto }"
    parts = [
        f"<h2>{html.escape(title)}</h2>\n{plot(rows, title).svg}\n"
        for title, rows in tables.items()
    ]
    head = f'<head><meta charset="utf-8"><style>{style}</style></head>'
    rest = f"\n{head}\n<body>\n{''.join(parts)}</body>\n</html>\n"
    return BEGINNING + rest.encode()


def _rows_of(frame: DataFrame) -> list[Row]:
    known = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in known.to_dict("records")]


def _switches(rows: Sequence[Row], title: str) -> Drawing:
    drawing = Drawing(title, "Bars: seconds of a switch; whiskers: 95 % intervals.")
    with drawn(drawing, 3.0) as (axes,):
        for place, row in enumerate(rows):
            colour = FIRST if row["switch"] == "hot" else SECOND
            axes.bar(place, row["switch_seconds"], color=colour)
            _whiskers(axes, place, row, "switch_seconds", QUIET)
        names = [f"{row['switch']},\n{row['workers']} workers" for row in rows]
        axes.set(yscale="log", ylabel="seconds of a switch")
        axes.set_xticks(range(len(rows)), names)
    return drawing


def _curves(rows: Sequence[Row], title: str) -> Drawing:
    kinds = [(kind, list(tests)) for kind, tests in groupby(rows, _kind)]
    between = [name for name in dict.fromkeys(run for (_, _, run), _ in kinds) if "%" in name]
    drawing = Drawing(title, "A line for each kind of run: its accuracy over training time.")
    with drawn(drawing, 4.0) as (axes,):
        for (workers, _, run), tests in kinds:
            colour = FIRST if run == "BSP" else SECOND
            if run in between:
                colour = _BETWEEN[between.index(run) % len(_BETWEEN)]
            axes.plot(
                [test["seconds"] for test in tests],
                [test["accuracy"] for test in tests],
                color=colour,
                linewidth=1 if run in between else 2,
                linestyle=":" if run.startswith("ASP ") else "-",
                label=literal(run + f", {workers} workers" * _differ(rows, "workers")),
            )
        axes.set(xlabel="training time in seconds", ylabel="accuracy", xlim=(0, None))
    return drawing


def _kind(row: Row) -> tuple[int, str, str]:
    return row["workers"], row["cluster"], row["run"]


def _panels(rows: Sequence[Row], title: str) -> Drawing:
    place, series = _layout(rows)
    names = list(dict.fromkeys(map(series, rows)))
    places = list(dict.fromkeys(map(place, rows)))
    drawing = Drawing(
        title,
        "Above: mean accuracy of each kind of run, and below a cross how many diverged. Below: bars"
        " of training time, and circles for the time to the target. Whiskers: 95 % intervals.",
    )
    with drawn(drawing, 2.6, 2.4, sharex=True) as (above, below):
        target = rows[0]["target"]
        if not _differ(rows, "target") and target is not None:
            above.axhline(target, color=QUIET, linestyle=":", label="target")
        for number, name in enumerate(names):
            colour, marker = _LOOKS[number % len(_LOOKS)]
            width = 0.8 / len(names)
            for row in rows:
                if series(row) != name:
                    continue
                x = places.index(place(row)) + (number - (len(names) - 1) / 2) * width
                if row["accuracy"] is not None:
                    above.plot(x, row["accuracy"], marker, color=colour, label=literal(name))
                    _whiskers(above, x, row, "accuracy", colour)
                if row["diverged"]:
                    text = f"✕\n{row['diverged']}/{row['runs']}"
                    above.text(
                        x, 0.01, text, color=colour, ha="center", va="bottom", fontsize=8,
                        transform=above.get_xaxis_transform(),
                    )  # fmt: skip
                if row["seconds"] is not None:
                    below.bar(x, row["seconds"], width, color=colour, alpha=0.4)
                    _whiskers(below, x, row, "seconds", QUIET)
                if row["seconds_to_target"] is not None:
                    below.plot(x, row["seconds_to_target"], "o", color=colour, fillstyle="none")
                    _whiskers(below, x, row, "seconds_to_target", colour)
        above.margins(y=0.25)
        diverged = " (✕ diverged)" if any(row["diverged"] for row in rows) else ""
        above.set_ylabel(f"accuracy{diverged}")
        below.set_ylabel("seconds (○ to target)")
        below.set_xticks(range(len(places)), map(literal, places), rotation=30, ha="right")
    return drawing


def _whiskers(axes: Any, x: float, row: Row, column: str, colour: str) -> None:
    half = row[f"{column}_half_width"]
    if half is not None:
        axes.errorbar(x, row[column], half, color=colour, capsize=2, linewidth=1)


def _layout(rows: Sequence[Row]) -> tuple[Callable[[Row], str], Callable[[Row], str]]:
    """The columns along the axis and beside each other."""

    def cluster(row: Row) -> str:
        return f"{row['workers']} workers" + f" {row['cluster'] or 'real'}" * has_several

    def run(row: Row) -> str:
        return str(row["run"])

    has_several = len({_kind(row)[:2] for row in rows}) > len({row["workers"] for row in rows})
    if "policy_of" in rows[0]:
        return cluster, lambda row: f"policy of {row['policy_of']}"
    if _differ(rows, "under"):
        return run, lambda row: short_conditions(row["under"]) or "undisturbed"
    if _differ(rows, "variant"):
        return lambda row: f"{row['run']} {row['variant'].partition('=')[2]}".rstrip(), cluster
    if any(row["protocols"].startswith("asp,") and row["percent"] % 100 for row in rows):
        return _share, lambda row: f"{row['protocols'][:3].upper()} first"
    return run, cluster


def _share(row: Row) -> str:
    return f"{bsp_percent(row['protocols'].split(',')[0], row['percent']):g} % in BSP"


def _differ(rows: Sequence[Row], column: str) -> bool:
    return len({row[column] for row in rows}) > 1
