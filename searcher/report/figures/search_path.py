"""The way of a search, run by run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.figures.style import (
    ACCEPTED,
    BAND,
    FIRST,
    POLICY,
    QUIET,
    REJECTED,
    SwitchAxis,
    figure_of,
    level,
    switch_title,
)
from syncswitch.searcher.report.history import PathStep, kind_of
from syncswitch.searcher.text.values import percent_text
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import Metric

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


_MARKS = {
    "target": ("measures the target", "diamond", FIRST),
    "accepted": ("keeps the accuracy", "circle", ACCEPTED),
    "rejected": ("loses too much", "x", REJECTED),
    "open": ("still open", "circle-open", QUIET),
    "speculative": ("speculative", "triangle-up-open", QUIET),
}


def search_path(data: ReportData) -> Figure:
    """Every run of the search in its order, and between which switch points the answer was then.

    A mark is a run at its switch point; it says what the strategy thought of the switch point after
    it. The band is the bracket: from the highest switch point known to switch too early to the
    lowest known to be acceptable.

    Raises:
        UserError: There is no search, or an evaluation instead, no run of it is complete, or plotly
            is missing.
    """
    steps = data.path
    if data.search is None:
        raise UserError(f"no search of {data.identity.name} is recorded here, only runs")
    if data.is_evaluation:
        raise UserError(
            f"{data.search.study} is an evaluation: it compares switch points and looks for none"
        )
    if not steps:
        raise UserError("no run of the search is complete yet")
    ends = [end for step in steps for end in (step.lower_percent, step.upper_percent)]
    axis = SwitchAxis([*(step.switch_percent for step in steps), *ends])
    shapes = []
    if data.answer is not None and data.is_found_here:
        answer = axis.at(data.answer.switch_percent)
        shapes = [level(answer, "the answer", POLICY, "dash", above=False, at="end")]
    return figure_of(
        [*_bracket(steps, axis), *_marks(steps, axis, data.trial_ids, data.identity.decided_by)],
        x={
            "title": "run of the search",
            "dtick": max(1, len(steps) // 10),
            "range": [0.3, len(steps) + 0.7],
        },
        y=axis.axis(switch_title(data)),
        shapes=shapes,
    )


def _bracket(steps: Sequence[PathStep], axis: SwitchAxis) -> list[dict[str, Any]]:
    """Two lines with steps, and what is between them."""
    numbers = [*range(1, len(steps) + 1), len(steps) + 1]
    ends = {
        "upper": [axis.at(step.upper_percent) for step in steps],
        "lower": [axis.at(step.lower_percent) for step in steps],
    }
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "bracket of the answer",
            "showlegend": end == "lower",
            "x": [number - 0.5 for number in numbers],
            "y": [*places, places[-1]],
            "line": {"color": POLICY, "width": 1, "shape": "hv"},
            "fill": "tonexty" if end == "lower" else "none",
            "fillcolor": BAND,
            "hoverinfo": "skip",
        }
        for end, places in ends.items()
    ]


def _marks(
    steps: Sequence[PathStep], axis: SwitchAxis, trial_ids: Mapping[int, int], metric: Metric
) -> list[dict[str, Any]]:
    numbered = list(enumerate(steps, start=1))
    traces = []
    for kind, (name, symbol, colour) in _MARKS.items():
        mine = [(number, step) for number, step in numbered if kind_of(step) == kind]
        if mine:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers+text" if len(steps) <= _MOST_WORDS else "markers",
                    "name": name,
                    "x": [number for number, _ in mine],
                    "y": [axis.at(step.switch_percent) for _, step in mine],
                    "text": [_outcome(step, metric) for _, step in mine],
                    "textposition": "top center",
                    "textfont": {"size": 11},
                    "cliponaxis": False,
                    "hovertext": [_words(number, step, metric) for number, step in mine],
                    "customdata": [trial_ids.get(step.trial_number) for _, step in mine],
                    "hovertemplate": "%{hovertext}<extra></extra>",
                    "marker": {"symbol": symbol, "size": 11, "color": colour},
                }
            )
    return traces


_MOST_WORDS = 16


def _outcome(step: PathStep, metric: Metric) -> str:
    if step.diverged:
        return "diverged"
    value = metric.value(step.accuracy)
    return f"{value:.3f}" if metric.has_usual_threshold else f"{value:.3g}"


def _words(number: int, step: PathStep, metric: Metric) -> str:
    return (
        f"run {number} at {percent_text(step.switch_percent)}: {_outcome(step, metric)}<br>after it"
        f" the answer is above {step.lower_percent:.4g} and at most {step.upper_percent:.4g} %"
    )
