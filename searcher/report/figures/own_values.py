"""Figures of what is compared, drawn as the metric's own values; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syncswitch.storage.records.metric import Metric

_OTHER_SIDE = {"triangle-up": "triangle-down", "triangle-down": "triangle-up"}
_OTHER_ANCHOR = {"bottom": "top", "top": "bottom"}

Parts = tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]]]
"""Traces, the axis of the accuracies, and shapes on it."""


def as_own_values(
    metric: Metric,
    traces: Sequence[Mapping[str, Any]],
    y: Mapping[str, Any],
    shapes: Sequence[Mapping[str, Any]],
) -> Parts:
    """A figure whose accuracies are the values that people know.

    Where less is better, what was above is below: a loss falls, as everywhere.
    """
    axis = dict(y)
    if not metric.has_usual_threshold:
        axis["tickformat"] = ".4~g"
    if not metric.is_less_better:
        return list(map(dict, traces)), axis, list(map(dict, shapes))
    if "range" in axis:
        axis["range"] = [metric.value(end) for end in reversed(axis["range"])]
    return [_trace(one, metric) for one in traces], axis, [_shape(one, metric) for one in shapes]


def _trace(trace: Mapping[str, Any], metric: Metric) -> dict[str, Any]:
    turned = {**trace, "y": [metric.value(one) for one in trace["y"]]}
    if "error_y" in trace:
        error = trace["error_y"]
        turned["error_y"] = {
            **error,
            "array": error["arrayminus"],
            "arrayminus": error["array"],
        }
    symbols = trace.get("marker", {}).get("symbol")
    if isinstance(symbols, list):
        turned["marker"] = {
            **trace["marker"],
            "symbol": [_OTHER_SIDE.get(one, one) for one in symbols],
        }
    return turned


def _shape(shape: Mapping[str, Any], metric: Metric) -> dict[str, Any]:
    turned = {**shape, **{end: metric.value(shape[end]) for end in ("y0", "y1")}}
    if "label" in shape:
        label = shape["label"]
        turned["label"] = {**label, "yanchor": _OTHER_ANCHOR[label["yanchor"]]}
    return turned
