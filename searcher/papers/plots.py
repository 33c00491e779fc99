"""Draws the papers' figures, in the style of the reports'; needs the extra `report`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from syncswitch.searcher.papers.runs import bsp_percent
from syncswitch.searcher.papers.tables import Row, short_conditions
from syncswitch.searcher.report.figures.style import (
    FIRST,
    POLICY,
    QUIET,
    SECOND,
    Trace,
    figure_of,
    level,
    plain,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from syncswitch.storage.queries.record_frames import DataFrame

_LOOKS = (
    (FIRST, "diamond"),
    (SECOND, "square"),
    (POLICY, "circle"),
    ("#CC79A7", "triangle-up"),
    ("#E69F00", "star"),
    ("#56B4E9", "hexagon"),
)
_BETWEEN = ("#1B4F45", "#2A7F6F", "#5FB3A1", "#9CCFC3", "#B7A7D1", "#7E6AA8", "#4F3C7C")


def plot(table: DataFrame | Sequence[Row]) -> Figure:
    """Draws a figure: accuracy and time of each kind of run, curves, or times of switches.

    Args:
        table: What `figure` gives, or some of its rows.

    Raises:
        UserError: plotly is missing.
    """
    rows = table if isinstance(table, Sequence) else _rows_of(table)
    if "switch_seconds" in rows[0]:
        return _switches(rows)
    return _curves(rows) if "worker_step" in rows[0] else _panels(rows)


def page(tables: Mapping[str, Sequence[Row]]) -> str:
    """An HTML page of drawings under their titles, which needs nothing else."""
    parts = []
    for number, (title, rows) in enumerate(tables.items()):
        drawing = plot(rows).to_html(include_plotlyjs=not number, full_html=False)
        parts.append(f"<h2>{plain(title)}</h2>\n{drawing}\n")
    style = "body { font-family: system-ui, sans-serif; max-width: 64rem; margin: 2rem auto }"
    head = f'<head><meta charset="utf-8"><style>{style}</style></head>'
    return f"<!doctype html>\n<html>\n{head}\n<body>\n{''.join(parts)}</body>\n</html>\n"


def _rows_of(frame: DataFrame) -> list[Row]:
    known = frame.astype(object).where(frame.notna(), None)
    rows = known.to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _switches(rows: Sequence[Row]) -> Figure:
    bars = [
        {
            "type": "bar",
            "name": row["switch"],
            "x": [f"{row['switch']}, {row['workers']} workers"],
            "y": [row["switch_seconds"]],
            "error_y": _whiskers([row], "switch_seconds", QUIET),
            "marker": {"color": FIRST if row["switch"] == "hot" else SECOND},
        }
        for row in rows
    ]
    return figure_of(
        bars,
        x={"type": "category"},
        y={"title": "seconds of a switch", "type": "log"},
        showlegend=False,
    )


def _curves(rows: Sequence[Row]) -> Figure:
    kinds = [(kind, list(tests)) for kind, tests in groupby(rows, _kind)]
    names = list(dict.fromkeys(run for (_, _, run), _ in kinds))
    between = [name for name in names if "%" in name]
    traces = []
    for (workers, _, run), tests in kinds:
        colour = FIRST if run == "BSP" else SECOND
        if run in between:
            colour = _BETWEEN[between.index(run) % len(_BETWEEN)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plain(run + f", {workers} workers" * _differ(rows, "workers")),
                "x": [test["seconds"] for test in tests],
                "y": [test["accuracy"] for test in tests],
                "line": {
                    "color": colour,
                    "width": 1.5 if run in between else 3,
                    "dash": "dot" if run.startswith("ASP ") else "solid",
                },
            }
        )
    return figure_of(
        traces,
        x={"title": "training time in seconds", "rangemode": "tozero"},
        y={"title": "accuracy"},
        height=480,
    )


def _kind(row: Row) -> tuple[int, str, str]:
    return row["workers"], row["cluster"], row["run"]


def _panels(rows: Sequence[Row]) -> Figure:
    """Above the accuracies, below the times; whiskers are 95 % intervals."""
    place, series = _layout(rows)
    names = list(dict.fromkeys(map(series, rows)))
    low, high = _accuracies(rows)
    room = max(0.15 * (high - low), 0.002)
    bottom = low - room * any(row["diverged"] for row in rows)
    traces: list[Trace] = []
    for number, name in enumerate(names):
        alike = [row for row in rows if series(row) == name]
        shared = {"x": [plain(place(row)) for row in alike], "offsetgroup": str(number)}
        shared |= {"name": plain(name), "legendgroup": str(number)}
        words = "{diverged} of {runs} diverged" if len(names) == 1 else "{diverged}/{runs}"
        texts = [words.format(**row) for row in alike]
        traces += _of_series(shared, alike, _LOOKS[number % len(_LOOKS)], bottom, texts)
    shapes = []
    if not _differ(rows, "target") and rows[0]["target"] is not None:
        shapes = [level(rows[0]["target"], "target", QUIET, "dot", above=True, at="end")]
    places = [plain(place(row)) for row in rows]
    return figure_of(
        traces,
        x={"type": "category", "categoryarray": list(dict.fromkeys(places)), "anchor": "y2"},
        y={
            "title": "accuracy" + " (x diverged)" * any(row["diverged"] for row in rows),
            "domain": [0.53, 1],
            "tickformat": ".4~f",
            "range": [bottom - room, high + room],
        },
        yaxis2={
            "title": "seconds (○ to the target)",
            "domain": [0, 0.47],
            "range": [0, 1.1 * max((row["seconds"] or 0.0 for row in rows), default=0.0) or 1.0],
        },
        shapes=shapes,
        barmode="group",
        scattermode="group",
        showlegend=len(names) > 1,
        height=540,
    )


def _layout(rows: Sequence[Row]) -> tuple[Callable[[Row], str], Callable[[Row], str]]:
    """What stands along the axis, and what beside each other."""

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


def _of_series(
    shared: Trace, rows: Sequence[Row], look: tuple[str, str], bottom: float, lost_texts: list[str]
) -> list[Trace]:
    colour, symbol = look
    lost = [bool(row["diverged"]) for row in rows]
    below = {**shared, "showlegend": False, "yaxis": "y2"}
    return [
        _dots(shared, rows, "accuracy", {"color": colour, "size": 9, "symbol": symbol}),
        {
            **_dots(
                shared, rows, "accuracy", {"color": colour, "size": 8, "symbol": "x-thin-open"}
            ),
            "mode": "markers+text",
            "y": [bottom if is_lost else None for is_lost in lost],
            "text": lost_texts,
            "textposition": "top center",
            "error_y": None,
            "showlegend": False,
        },
        {
            **below,
            "type": "bar",
            "y": [row["seconds"] for row in rows],
            "error_y": _whiskers(rows, "seconds", QUIET),
            "marker": {"color": colour, "opacity": 0.4},
        },
        _dots(
            below, rows, "seconds_to_target", {"color": colour, "size": 8, "symbol": "circle-open"}
        ),
    ]


def _dots(shared: Trace, rows: Sequence[Row], column: str, marker: Trace) -> Trace:
    return {
        **shared,
        "type": "scatter",
        "mode": "markers",
        "y": [row[column] for row in rows],
        "error_y": _whiskers(rows, column, marker["color"]),
        "marker": marker,
    }


def _whiskers(rows: Sequence[Row], column: str, colour: str) -> Trace:
    halves = [row[f"{column}_half_width"] for row in rows]
    return {"type": "data", "array": halves, "color": colour, "thickness": 1.5}


def _accuracies(rows: Sequence[Row]) -> tuple[float, float]:
    """The range of the accuracies and their whiskers."""
    known = [row for row in rows if row["accuracy"] is not None]
    halves = [row["accuracy_half_width"] or 0.0 for row in known]
    ends = [
        row["accuracy"] + side * half
        for row, half in zip(known, halves, strict=True)
        for side in (-1, 1)
    ]
    ends += [row["target"] for row in rows if row["target"] is not None]
    return (min(ends), max(ends)) if ends else (0.0, 1.0)


def _differ(rows: Sequence[Row], column: str) -> bool:
    return len({row[column] for row in rows}) > 1
