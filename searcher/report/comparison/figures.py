"""Several reports in the same axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.report.comparison.sides import Side
from syncswitch.searcher.report.figures.curves import curve_name
from syncswitch.searcher.report.figures.own_values import as_own_values
from syncswitch.searcher.report.figures.style import SwitchAxis, figure_of, plain
from syncswitch.searcher.report.series import drawn_curves
from syncswitch.searcher.text.values import accuracy_interval, percent_text
from syncswitch.storage.errors import UserError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ASIDE = 0.06  # of a halving, so that equal means do not hide each other


def accuracies(sides: Sequence[Side]) -> Figure:
    """Mean accuracy of each switch point with its 95 % interval; stars are the policies.

    Raises:
        UserError: Nothing is measured, they have different metrics, or plotly is missing.
    """
    known = [
        (number, side, point)
        for number, side in enumerate(sides)
        for point in side.data.switch_points
        if point.mean_accuracy is not None
    ]
    if not known:
        raise UserError("no run of any of them has an accuracy")
    axis = SwitchAxis(point.candidate_percent for _, _, point in known)
    traces = [trace for number, side in enumerate(sides) for trace in _means(side, axis, number)]
    first = {side.data.first for side in sides}
    unit = plain(*first) if len(first) == 1 else "the first protocol"
    return _of_metric(
        sides, "converged", traces, axis.axis(f"switch point (% of the job in {unit})")
    )


def _of_metric(
    sides: Sequence[Side], what: str, traces: Sequence[dict[str, Any]], x: dict[str, Any]
) -> Figure:
    metrics = dict.fromkeys(side.data.identity.decided_by for side in sides)
    if len({metric.axis_title for metric in metrics}) > 1:
        names = ", ".join(metric.name for metric in metrics)
        raise UserError(f"they are decided by different metrics: {names}")
    metric = next(iter(metrics))
    y = {"title": f"{what} {metric.axis_title}", "tickformat": ".4~f"}
    traces, y, _ = as_own_values(metric, traces, y, [])
    return figure_of(traces, x=x, y=y)


def _means(side: Side, axis: SwitchAxis, number: int) -> list[dict[str, Any]]:
    metric = side.data.identity.decided_by
    points = [one for one in side.data.switch_points if one.mean_accuracy is not None]
    means = [one.mean_accuracy or 0.0 for one in points]
    places = [axis.at(one.candidate_percent) + number * _ASIDE for one in points]
    both = list(zip(points, means, strict=True))
    above = [0.0 if one.upper_accuracy is None else one.upper_accuracy - mean for one, mean in both]
    below = [0.0 if one.lower_accuracy is None else mean - one.lower_accuracy for one, mean in both]
    texts = [
        f"{percent_text(one.candidate_percent)}: "
        + accuracy_interval(mean, one.lower_accuracy, one.upper_accuracy, metric)
        for one, mean in both
    ]
    line: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(side.name),
        "legendgroup": side.letter,
        "x": places,
        "y": means,
        "error_y": {"type": "data", "array": above, "arrayminus": below, "thickness": 1.2},
        "text": texts,
        "hovertemplate": f"{side.letter}, %{{text}}<extra></extra>",
        "line": {"color": side.colour, "width": 1.5, "dash": side.dash},
        "marker": {"symbol": side.symbol, "size": 8, "color": side.colour},
    }
    answer = side.data.answer
    if answer is None or answer.mean_accuracy is None:
        return [line]
    star = {
        "type": "scatter",
        "mode": "markers",
        "name": f"{side.letter}, its policy: {percent_text(answer.switch_percent)}",
        "legendgroup": side.letter,
        "x": [axis.at(answer.switch_percent) + number * _ASIDE],
        "y": [answer.mean_accuracy],
        "hovertemplate": f"{side.letter}: {percent_text(answer.switch_percent)}<extra></extra>",
        "marker": {
            "symbol": "star",
            "size": 17,
            "color": side.colour,
            "line": {"color": "white", "width": 1},
        },
    }
    return [line, star]


def curves(sides: Sequence[Side]) -> Figure:
    """Test accuracy over training time: thick with the policy, thin the first protocol alone.

    Without a policy it is the earliest switch that keeps the accuracy, else the earliest one. Of
    each the run of median accuracy, of an even number the better one of the two.

    Raises:
        UserError: No curve is recorded, they have different metrics, or plotly is missing.
    """
    traces = [trace for side in sides for trace in _curves(side)]
    if not traces:
        raise UserError("no run of any of them has a recorded curve of accuracy")
    x = {"title": "training time in seconds", "rangemode": "tozero"}
    return _of_metric(sides, "test", traces, x)


def _curves(side: Side) -> list[dict[str, Any]]:
    kinds = {curve.role: curve for curve in drawn_curves(side.data)}
    if "policy" in kinds:
        kinds.pop("early", None)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{side.letter}, {curve_name(curve, side.data)}",
            "x": list(curve.seconds),
            "y": list(curve.accuracies),
            "line": {
                "color": side.colour,
                "width": 1.2 if role == "first" else 3,
                "dash": side.dash,
            },
            "hovertemplate": f"{side.letter}, {plain(curve.name)}: %{{y:.4~g}} after %{{x:.1f}} s"
            "<extra></extra>",
        }
        for role, curve in kinds.items()
    ]
