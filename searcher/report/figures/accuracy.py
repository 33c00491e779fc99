"""Accuracy against the switch point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.report.data import Acceptance, ReportData, ReportRun
from syncswitch.searcher.report.figures.own_values import as_own_values
from syncswitch.searcher.report.figures.style import (
    BAND,
    FIRST,
    INK,
    POLICY,
    REJECTED,
    SwitchAxis,
    figure_of,
    level,
    nothing_compared,
    plain,
    switch_title,
)
from syncswitch.searcher.text.values import accuracy_text, counted, percent_text
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import Metric

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


_SPREAD = 0.22  # of the runs of a switch point, in halvings


def accuracy_by_switch(data: ReportData) -> Figure:
    """Converged accuracy of every run against its switch point.

    Points are runs (diverged ones lie on the bottom line), diamonds the means of the switch points
    with their 95 % intervals (Student's), the band what is accepted, the star the policy.

    Raises:
        UserError: No run is complete and sound, or plotly is missing.
    """
    runs, reason = data.compared, nothing_compared(data)
    if reason is not None:
        raise UserError(reason)
    accuracies = [run.trial.converged_accuracy or 0.0 for run in runs if run.is_sound]
    if not accuracies:
        raise UserError(f"every run of {data.identity.name} diverged, so there is no accuracy")
    axis = SwitchAxis(run.trial.candidate_percent or 0.0 for run in runs)
    places = _places(runs, axis)
    low, high = _range(accuracies, data)
    bottom = low + 0.06 * (high - low)  # diverged runs are drawn here, below everything
    traces = [
        *_run_traces(runs, places, bottom, data.identity.decided_by),
        *_mean_trace(data, axis),
        *_cut_trace(data, axis, low, high),
        *_answer_trace(data, axis, bottom),
    ]
    metric = data.identity.decided_by
    y = {
        "title": f"converged {metric.axis_title}",
        "tickformat": ".4~f",
        "range": [low, high],
    }
    shapes = _acceptance_shapes(data.acceptance, metric)
    traces, y, shapes = as_own_values(metric, traces, y, shapes)
    return figure_of(traces, x=axis.axis(switch_title(data)), y=y, shapes=shapes)


def _places(runs: Sequence[ReportRun], axis: SwitchAxis) -> dict[int, float]:
    """Side by side, so that equal runs do not hide each other."""
    places: dict[int, float] = {}
    for percent in axis.percents:
        same = [run.trial.trial_id for run in runs if (run.trial.candidate_percent or 0) == percent]
        for number, trial_id in enumerate(same):
            aside = (number + 0.5) / len(same) - 0.5
            places[trial_id] = axis.at(percent) + _SPREAD * 2 * aside
    return places


def _range(accuracies: Sequence[float], data: ReportData) -> tuple[float, float]:
    """Of what is drawn; the interval of two runs may be wider than all of it, and is cut."""
    known = [*accuracies, *(one.mean_accuracy for one in data.switch_points if one.mean_accuracy)]
    if data.acceptance is not None:
        known += [data.acceptance.least_accuracy, data.acceptance.target_accuracy]
    low, high = min(known), max(known)
    room = 0.18 * max(high - low, 0.004)
    return low - 2 * room, high + room


def _run_traces(
    runs: Sequence[ReportRun], places: dict[int, float], bottom: float, metric: Metric
) -> list[dict[str, Any]]:
    kinds = (
        ("one run", "whole", "circle", INK),
        ("one run, stopped early", "stopped", "circle-open", INK),
        (f"diverged (no {metric.name})", "diverged", "x", REJECTED),
    )
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [places[run.trial.trial_id] for run in of_kind],
            "y": [_height(run, bottom) for run in of_kind],
            "text": [_run_text(run, metric) for run in of_kind],
            "customdata": [run.trial.trial_id for run in of_kind],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"symbol": symbol, "size": 8, "color": colour, "opacity": 0.75},
        }
        for name, outcome, symbol, colour in kinds
        if (of_kind := [run for run in runs if run.outcome == outcome])
    ]


def _height(run: ReportRun, bottom: float) -> float:
    return bottom if run.trial.diverged else run.trial.converged_accuracy or 0.0


def _run_text(run: ReportRun, metric: Metric) -> str:
    reached = f"{metric.name} {accuracy_text(run.trial.converged_accuracy, metric)}"
    measured = "diverged" if run.trial.diverged else plain(reached)
    return f"{plain(run.name)}<br>{percent_text(run.trial.candidate_percent or 0.0)}: {measured}"


def _mean_trace(data: ReportData, axis: SwitchAxis) -> list[dict[str, Any]]:
    known = [one for one in data.switch_points if one.mean_accuracy is not None]
    if not known:
        return []
    means = [one.mean_accuracy or 0.0 for one in known]
    pairs = list(zip(known, means, strict=True))
    above = [0.0 if one.upper_accuracy is None else one.upper_accuracy - m for one, m in pairs]
    below = [0.0 if one.lower_accuracy is None else m - one.lower_accuracy for one, m in pairs]
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "mean, 95 % interval",
            "x": [axis.at(one.candidate_percent) for one in known],
            "y": means,
            "error_y": {
                "type": "data",
                "array": above,
                "arrayminus": below,
                "color": FIRST,
                "thickness": 1.5,
            },
            "text": [
                f"{percent_text(one.candidate_percent)}: mean"
                f" {accuracy_text(one.mean_accuracy, data.identity.decided_by)}"
                f" of {counted(one.runs - one.diverged_runs, 'run')}"
                for one in known
            ],
            "hovertemplate": "%{text}<extra></extra>",
            "line": {"color": FIRST, "width": 1.5, "dash": "dot"},
            "marker": {"symbol": "diamond-open", "size": 14, "color": FIRST},
        }
    ]


def _cut_trace(data: ReportData, axis: SwitchAxis, low: float, high: float) -> list[dict[str, Any]]:
    """An arrow where an interval goes on beyond the figure."""
    ends = [
        (axis.at(one.candidate_percent), *end)
        for one in data.switch_points
        for end in (
            (one.upper_accuracy, high, "triangle-up"),
            (one.lower_accuracy, low, "triangle-down"),
        )
    ]
    cut = [
        (place, edge, symbol, end)
        for place, end, edge, symbol in ends
        if end is not None and not low <= end <= high
    ]
    if not cut:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "the interval goes on",
            "x": [place for place, _, _, _ in cut],
            "y": [edge for _, edge, _, _ in cut],
            "cliponaxis": False,
            "text": [data.identity.decided_by.text(end) for _, _, _, end in cut],
            "hovertemplate": "the interval goes on to %{text}<extra></extra>",
            "marker": {"symbol": [one for _, _, one, _ in cut], "size": 11, "color": FIRST},
        }
    ]


def _answer_trace(data: ReportData, axis: SwitchAxis, bottom: float) -> list[dict[str, Any]]:
    answer = data.answer
    if answer is None:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"the policy: {percent_text(answer.switch_percent)}",
            "x": [axis.at(answer.switch_percent)],
            "y": [bottom if answer.mean_accuracy is None else answer.mean_accuracy],
            "hovertemplate": f"the policy: {percent_text(answer.switch_percent)}<extra></extra>",
            "marker": {
                "symbol": "star",
                "size": 17,
                "color": POLICY,
                "line": {"color": "white", "width": 1},
            },
        }
    ]


def _acceptance_shapes(acceptance: Acceptance | None, metric: Metric) -> list[dict[str, Any]]:
    if acceptance is None:
        return []
    least, target = acceptance.least_accuracy, acceptance.target_accuracy
    worst = "most" if metric.is_less_better else "least"
    band = {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": least,
        "y1": target,
        "layer": "below",
        "fillcolor": BAND,
        "line": {"width": 0},
    }
    return [
        band,
        level(target, f"target {metric.text(target)}", POLICY, "solid", above=True),
        level(least, f"{worst} accepted {metric.text(least)}", POLICY, "dash", above=False),
    ]
