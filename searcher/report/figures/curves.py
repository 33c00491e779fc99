"""Accuracy over training time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.figures.own_values import as_own_values
from syncswitch.searcher.report.figures.style import (
    FIRST,
    POLICY,
    QUIET,
    SECOND,
    figure_of,
    level,
    nothing_compared,
    plain,
)
from syncswitch.searcher.report.series import DrawnCurve, drawn_curves
from syncswitch.searcher.text.sentences import speed_up_text
from syncswitch.searcher.text.values import percent_text
from syncswitch.storage.errors import UserError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ROLES = {
    "first": (FIRST, "solid"),
    "policy": (POLICY, "dash"),
    "early": (SECOND, "dot"),
}


def accuracy_over_time(data: ReportData) -> Figure:
    """Test accuracy over training time: the first protocol alone, the policy, an early switch.

    As Fig. 11 of the Sync-Switch paper. Thick is the run of median accuracy of each switch point,
    or the two next to it; thin are others. The mark on a thick line is its switch.

    Raises:
        UserError: No curve is recorded, or plotly is missing.
    """
    curves = drawn_curves(data)
    if not curves:
        raise UserError(nothing_compared(data) or "no run has a recorded curve of accuracy")
    last = {curve.role: curve for curve in curves}  # each kind is named once
    traces = [
        trace
        for curve in curves
        for trace in _curve_traces(curve, data, is_named=curve is last[curve.role])
    ]
    level_of, metric = data.acceptance, data.identity.decided_by
    y = {"title": f"test {metric.axis_title}", "tickformat": ".4~f", **_sound_range(curves)}
    shapes = []
    if level_of is not None:
        shapes = [level(level_of.target_accuracy, "target", QUIET, "dot", above=True)]
    traces, y, shapes = as_own_values(metric, traces, y, shapes)
    x = {"title": "training time in seconds", "rangemode": "tozero"}
    return figure_of(traces, x=x, y=y, shapes=shapes)


def _sound_range(curves: Sequence[DrawnCurve]) -> dict[str, Any]:
    """Of the curves that did not diverge: one that did leaves the figure at its bottom."""
    sound = [accuracy for curve in curves if not curve.diverged for accuracy in curve.accuracies]
    if not sound or not any(curve.diverged for curve in curves):
        return {}
    low, high = min(sound), max(sound)
    room = 0.08 * max(high - low, 0.01)
    return {"range": [low - room, high + room]}


def _curve_traces(curve: DrawnCurve, data: ReportData, *, is_named: bool) -> list[dict[str, Any]]:
    colour, dash = _ROLES[curve.role]
    name = curve_name(curve, data)
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "legendgroup": curve.role,
        "showlegend": is_named,
        "x": list(curve.seconds),
        "y": list(curve.accuracies),
        "customdata": [curve.trial_id] * len(curve.seconds),
        "opacity": 1.0 if curve.is_typical else 0.3,
        "line": {"color": colour, "width": 2.5 if curve.is_typical else 1, "dash": dash},
        "hovertemplate": f"{plain(curve.name)}: %{{y:.4~g}} after %{{x:.1f}} s<extra></extra>",
    }
    if curve.switch is None or not curve.is_typical:
        return [line]
    seconds, accuracy = curve.switch
    mark = {
        "type": "scatter",
        "mode": "markers",
        "name": "switch",
        "legendgroup": curve.role,
        "showlegend": False,
        "x": [seconds],
        "y": [accuracy],
        "customdata": [curve.trial_id],
        "marker": {
            "symbol": "diamond",
            "size": 12,
            "color": colour,
            "line": {"color": "white", "width": 1.5},
        },
        "hovertemplate": f"switch to {plain(data.second)} after %{{x:.1f}} s<extra></extra>",
    }
    return [line, mark]


def curve_name(curve: DrawnCurve, data: ReportData) -> str:
    """What a kind of curve is called, for people."""
    if curve.candidate_percent >= 100:
        name = f"{data.first} alone"
    elif curve.candidate_percent <= 0:
        name = f"{data.second} alone"
    else:
        name = f"switch at {percent_text(curve.candidate_percent)}"
    name += ", diverged" if curve.diverged else ""
    if curve.role != "policy" or data.answer is None:
        return plain(name)
    gain = data.measured_speed_up
    return plain(f"{name} (the policy)") + (f",<br>{speed_up_text(gain, 2)}" if gain else "")
