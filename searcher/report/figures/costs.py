"""Training times, what the search cost, and when it is paid back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.report.data import MeanSeconds, ReportData
from syncswitch.searcher.report.figures.style import (
    FIRST,
    INK,
    POLICY,
    QUIET,
    SECOND,
    figure_of,
    level,
    nothing_compared,
    plain,
    switch_title,
)
from syncswitch.searcher.report.series import switch_point_costs
from syncswitch.searcher.report.times import SwitchPointTimes, switch_point_times
from syncswitch.searcher.text.sentences import speed_up_text
from syncswitch.searcher.text.values import percent_text
from syncswitch.storage.errors import UserError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


_PARTS = (
    ("needed_seconds", "trained for the answer", FIRST, ""),
    ("unneeded_seconds", "not needed", SECOND, "x"),
    ("shared_seconds", "spared: began with another run's start", "#56B4E9", "/"),
    ("stopped_seconds", "spared: stopped when known", "#E69F00", "."),
)


def training_time(data: ReportData) -> Figure:
    """Mean training time of each switch point, relative to the first protocol alone.

    As Fig. 10 of the Sync-Switch paper, with the time of each run to the target. Whiskers are 95 %
    intervals of the switch point's mean (Student's); a single run has none. A run that was stopped
    early counts with what the whole would have taken. Where nothing is known of the first protocol
    alone, the bars are in seconds.

    Raises:
        UserError: No training time is known, or plotly is missing.
    """
    known = [one for one in switch_point_times(data) if one.seconds is not None]
    times = [(one.candidate_percent, one.seconds) for one in known if one.seconds is not None]
    if not times:
        raise UserError(
            nothing_compared(data) or f"no training time of {data.identity.name} is known yet"
        )
    baseline = data.baseline_seconds
    unit = baseline / 100 if baseline else 1.0
    answer = None if data.answer is None else data.answer.switch_percent
    highest = max((seconds.value + (seconds.half or 0.0)) / unit for _, seconds in times)
    top = 1.12 * max(highest, 100.0 if baseline else 0.0)
    bars = {
        "type": "bar",
        "name": "training time",
        "x": [f"{percent:.4g}" for percent, _ in times],
        "y": [seconds.value / unit for _, seconds in times],
        "text": [_bar_text(seconds.value, baseline) for _, seconds in times],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "hovertext": [_bar_words(one) for one in known],
        "hovertemplate": "%{x} %: %{hovertext}<extra></extra>",
        "marker": {
            "color": ["#8FD0BB" if percent == answer else "#C3D2DE" for percent, _ in times],
            "line": {"color": [POLICY if percent == answer else QUIET for percent, _ in times]},
        },
    }
    first = plain(data.first)
    title = f"percent of the time with {first} alone" if baseline else "training time in seconds"
    shapes = [level(100, f"{first} alone", QUIET, "dash", above=True, at="end")] if baseline else []
    return figure_of(
        [bars, *_whiskers(times, unit), *_to_target(known, unit)],
        x={"title": switch_title(data), "type": "category"},
        y={"title": title, "range": [0, top]},
        shapes=shapes,
        barmode="overlay",
        showlegend=any(one.waits for one in known),
    )


def _bar_words(times: SwitchPointTimes) -> str:
    seconds = "" if times.seconds is None else f"{times.seconds.value:,.1f} s"
    return f"{seconds}, {speed_up_text(times.speed_up, 2)}" if times.speed_up else seconds


def _to_target(times: Sequence[SwitchPointTimes], unit: float) -> list[dict[str, Any]]:
    """A mark for each run with a test at the target."""
    waits = [(one.candidate_percent, wait) for one in times for wait in one.waits]
    if not waits:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "first test at the target, of a run",
            "x": [f"{percent:.4g}" for percent, _ in waits],
            "y": [wait / unit for _, wait in waits],
            "marker": {"symbol": "diamond", "size": 9, "color": INK, "opacity": 0.75},
            "text": [f"{wait:,.1f} s" for _, wait in waits],
            "hovertemplate": "%{x} %: at the target after %{text}<extra></extra>",
        }
    ]


def _whiskers(times: Sequence[tuple[float, MeanSeconds]], unit: float) -> list[dict[str, Any]]:
    """Of the switch points with more than one run; the others would get one of length 0."""
    known = [(percent, mean.value, mean.half) for percent, mean in times if mean.half is not None]
    if not known:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "95 % interval",
            "x": [f"{percent:.4g}" for percent, _, _ in known],
            "y": [value / unit for _, value, _ in known],
            "error_y": {
                "type": "data",
                "array": [half / unit for _, _, half in known],
                "color": INK,
            },
            "marker": {"opacity": 0},
            "showlegend": False,
            "hoverinfo": "skip",
        }
    ]


def _bar_text(seconds: float, baseline: float | None) -> str:
    return f"{100 * seconds / baseline:.0f} %" if baseline else f"{seconds:,.0f} s"


def search_cost(data: ReportData) -> Figure:
    """What the runs of each switch point cost, and what they were spared.

    Raises:
        UserError: There is no search, nothing of it was trained yet, or plotly is missing.
    """
    if data.search is None:
        raise UserError(f"no search of {data.identity.name} is recorded here")
    costs = switch_point_costs(data)
    if not any(cost.paid_seconds for cost in costs):
        raise UserError("the search has trained nothing yet whose time is known")
    names = [percent_text(cost.candidate_percent) for cost in costs]
    traces: list[dict[str, Any]] = []
    for part, name, colour, pattern in _PARTS:
        seconds = [getattr(cost, part) for cost in costs]
        if any(seconds):
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": name,
                    "y": names,
                    "x": seconds,
                    "hovertemplate": f"%{{y}}: {name}, %{{x:,.1f}} s<extra></extra>",
                    "marker": {
                        "color": colour,
                        "opacity": 0.45 if name.startswith("spared") else 1.0,
                        "pattern": {"shape": pattern, "fillmode": "overlay", "solidity": 0.2},
                    },
                }
            )
    return figure_of(
        traces,
        x={"title": "training time in seconds"},
        y={"title": "switch point", "type": "category", "autorange": "reversed"},
        barmode="stack",
        legend={"traceorder": "normal", "orientation": "h", "y": 1.02, "yanchor": "bottom"},
        height=160 + 44 * len(costs),
    )


def payback(data: ReportData) -> Figure:
    """Time of all trainings so far, with the search and its policy, and with neither.

    Raises:
        UserError: What the search cost or what the policy saves is not known, it saves nothing, or
            plotly is missing.
    """
    recurrences = data.recurrences_to_pay_back
    if recurrences is None or data.cost is None or data.policy_seconds is None:
        raise UserError("it is not known what the search cost, or what its policy saves")
    if math.isinf(recurrences):
        raise UserError(
            f"the policy is not faster than {data.first} alone by anything that counts, so the"
            " search is not paid back"
        )
    paid, each = data.cost.paid_seconds, data.policy_seconds
    usual = each * (data.speed_up or 1.0)
    end = max(4, math.ceil(1.6 * recurrences))
    crossing = recurrences * usual
    return figure_of(
        [
            _line(f"{plain(data.first)} alone, no search", FIRST, "solid", [0, end * usual], end),
            _line("search, then its policy", POLICY, "dash", [paid, paid + end * each], end),
            {
                "type": "scatter",
                "mode": "markers",
                "name": "paid back",
                "x": [recurrences],
                "y": [crossing],
                "marker": {"symbol": "circle", "size": 11, "color": INK},
                "hovertemplate": f"paid back after {recurrences:.1f} trainings<extra></extra>",
            },
        ],
        x={"title": "trainings of this job", "rangemode": "tozero"},
        y={"title": "training time so far in seconds", "rangemode": "tozero"},
    )


def _line(name: str, colour: str, dash: str, ends: list[float], trainings: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [0, trainings],
        "y": ends,
        "line": {"color": colour, "width": 2.5, "dash": dash},
        "hovertemplate": "%{x:.0f} trainings: %{y:,.0f} s<extra></extra>",
    }
