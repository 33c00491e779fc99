"""What a search believed of each switch point, run by run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.figures.style import INK, figure_of, switch_title
from syncswitch.searcher.results.explanation import Explanation
from syncswitch.searcher.text.values import percent_text
from syncswitch.searcher.text.why import NO_BELIEFS, measured_text, shown_percents
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import Metric

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MOST_WORDS = 30  # runs whose numbers are written
_ROW_PIXELS = 34
_COLOURS = [[0, "white"], [1, "#66C5AB"]]  # POLICY, light enough to be written on


def beliefs(data: ReportData) -> Figure:
    """How likely each switch point is good, as the search believed after each of its runs.

    A column is a run, and framed at its switch point; the switch point in bold is the answer.

    Raises:
        UserError: Nothing is believed, or plotly is missing.
    """
    why = data.why
    if why is None:
        raise UserError(data.no_why or "nothing is known of it")
    if not why.runs:
        raise UserError("no run of the search is complete yet")
    if not why.beliefs:
        raise UserError(NO_BELIEFS)
    percents = shown_percents(why)
    answer = None if why.answer is None else why.answer.switch_percent
    names = [f"{percent:.6g}" for percent in percents]
    return figure_of(
        [_cells(why, percents, data.identity.decided_by)],
        x={
            "title": "run of the search",
            "tick0": 1,
            "dtick": max(1, len(why.runs) // 12),
            "range": [0.5, len(why.runs) + 0.5],
            "showgrid": False,
        },
        y={
            "title": switch_title(data),
            "tickvals": list(range(len(percents))),
            "ticktext": [
                f"<b>{name}</b>" if percent == answer else name
                for percent, name in zip(percents, names, strict=True)
            ],
            "range": [-0.5, len(percents) - 0.5],
            "showgrid": False,
        },
        shapes=[
            _frame(number, percents.index(run.run.switch_percent))
            for number, run in enumerate(why.runs, start=1)
            if run.run.switch_percent in percents
        ],
        height=max(300, 120 + _ROW_PIXELS * len(percents)),
        showlegend=False,
    )


def _cells(why: Explanation, percents: list[float], metric: Metric) -> dict[str, Any]:
    columns = [
        {one.switch_percent: 100 * one.good_probability for one in run.beliefs} for run in why.runs
    ]
    after = [
        f"after run {number} ({percent_text(run.run.switch_percent)}: {measured_text(run, metric)})"
        for number, run in enumerate(why.runs, start=1)
    ]
    return {
        "type": "heatmap",
        "name": "belief",
        "x": list(range(1, len(why.runs) + 1)),
        "y": list(range(len(percents))),
        "z": [[column.get(percent) for column in columns] for percent in percents],
        "zmin": 0,
        "zmax": 100,
        "xgap": 2,
        "ygap": 2,
        "colorscale": _COLOURS,
        "showscale": False,
        "textfont": {"color": INK},
        "texttemplate": "%{z:.0f}" if len(why.runs) <= _MOST_WORDS else "",
        "text": [[f"{percent_text(percent)}, {words}" for words in after] for percent in percents],
        "hovertemplate": "%{text}: %{z:.0f} % likely<extra></extra>",
        "hoverongaps": False,
    }


def _frame(number: int, place: int) -> dict[str, Any]:
    return {
        "type": "rect",
        "x0": number - 0.47,
        "x1": number + 0.47,
        "y0": place - 0.45,
        "y1": place + 0.45,
        "line": {"color": INK, "width": 2},
    }
