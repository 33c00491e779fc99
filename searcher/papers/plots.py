"""Draws the papers' figures, in the style of the reports'; needs the extra `report`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.report.figures.style import FIRST, QUIET, figure_of, plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Row = dict[str, Any]


def plot(rows: Sequence[Row]) -> Figure:
    """Draws a figure from its rows: curves, times of switches, or accuracy and time side by side.

    Raises UserError where plotly is missing.
    """
    if "switch_seconds" in rows[0]:
        return _switches(rows)
    return _curves(rows) if "worker_step" in rows[0] else _bars(rows)


def _switches(rows: Sequence[Row]) -> Figure:
    names = [f"{row['switch']}, {row['workers']} workers" for row in rows]
    bars = {"type": "bar", "x": names, "y": [row["switch_seconds"] for row in rows]}
    return figure_of(
        [bars],
        x={"type": "category"},
        y={"title": "seconds of a switch", "type": "log"},
        showlegend=False,
    )


def _curves(rows: Sequence[Row]) -> Figure:
    traces = []
    for (workers, _, run), tests in groupby(rows, lambda row: _kind(row)):
        curve = list(tests)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{plain(run)}, {workers} workers",
                "x": [test["seconds"] for test in curve],
                "y": [test["accuracy"] for test in curve],
            }
        )
    return figure_of(traces, x={"title": "training time in seconds"}, y={"title": "accuracy"})


def _kind(row: Row) -> tuple[int, str, str]:
    return row["workers"], row["cluster"], row["run"]


def _bars(rows: Sequence[Row]) -> Figure:
    """Bars are times, dots accuracies; whiskers are 95 % intervals."""
    names = [plain(label(row, rows)) for row in rows]
    times = {
        "type": "bar",
        "name": "training time",
        "x": names,
        "y": [row["seconds"] for row in rows],
        "error_y": {"type": "data", "array": [row["seconds_half_width"] for row in rows]},
        "marker": {"color": "#C3D2DE", "line": {"color": QUIET}},
        "yaxis": "y2",
    }
    accuracies = {
        "type": "scatter",
        "mode": "markers",
        "name": "accuracy",
        "x": names,
        "y": [row["accuracy"] for row in rows],
        "error_y": {"type": "data", "array": [row["accuracy_half_width"] for row in rows]},
        "marker": {"size": 9, "symbol": "diamond", "color": FIRST},
    }
    return figure_of(
        [times, accuracies],
        x={"type": "category", "automargin": True},
        y={"title": "accuracy", "overlaying": "y2"},
        yaxis2={"title": "training time in seconds", "side": "right", "rangemode": "tozero"},
    )


def label(row: Row, rows: Sequence[Row]) -> str:
    """What a row is about, as far as the rows differ."""
    parts = [f"policy of {row['policy_of']}"] if "policy_of" in row else []
    parts.append(row["run"])
    if len({other["workers"] for other in rows}) > 1:
        parts.append(f"{row['workers']} workers")
    if len({(other["workers"], other["cluster"]) for other in rows}) > len(
        {other["workers"] for other in rows}
    ):
        parts.append(row["cluster"] or "real")
    if row["under"]:
        parts.append(row["under"])
    return ", ".join(parts)
