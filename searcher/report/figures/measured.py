"""What was measured while runs trained: throughput, staleness, and what happened to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.report.data import ReportData, ReportRun
from syncswitch.searcher.report.figures.style import (
    FIRST,
    INK,
    POLICY,
    QUIET,
    SECOND,
    figure_of,
    nothing_compared,
    plain,
    switch_title,
)
from syncswitch.searcher.report.series import SwitchPointPhase, eventful_runs, switch_point_phases
from syncswitch.storage.errors import UserError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def phases(data: ReportData) -> Figure:
    """Throughput of each protocol at each switch point, and under it the staleness.

    Raises:
        UserError: Neither was measured, or plotly is missing.
    """
    found = switch_point_phases(data)
    timed = [one for one in found if one.worker_steps_per_second is not None]
    stale = [one for one in found if one.mean_staleness is not None]
    if not timed:
        raise UserError(
            nothing_compared(data) or "the runs say nothing of their throughput or staleness"
        )
    traces = _bars(data, timed, "worker_steps_per_second", "y", 0)
    split = {}
    if stale:
        traces += _bars(data, stale, "mean_staleness", "y2", 2)
        traces.append(_most(stale))
        split = {"yaxis2": {"title": "staleness in updates", "domain": [0, 0.44]}}
    return figure_of(
        traces,
        x={
            "title": switch_title(data),
            "type": "category",
            "categoryarray": list(dict.fromkeys(f"{p.candidate_percent:.4g}" for p in found)),
            "anchor": "y2" if stale else "y",
        },
        y={"title": "worker-steps per second", "domain": [0.56 if stale else 0, 1]},
        barmode="group",
        height=560 if stale else 400,
        **split,
    )


def _bars(
    data: ReportData, found: Sequence[SwitchPointPhase], value: str, axis: str, digits: int
) -> list[dict[str, Any]]:
    kinds = (
        (data.identity.first_protocol, FIRST, ""),
        (data.identity.second_protocol, SECOND, "/"),
    )
    return [
        {
            "type": "bar",
            "name": plain(protocol.upper()),
            "legendgroup": protocol,
            "showlegend": axis == "y",
            "x": [f"{one.candidate_percent:.4g}" for one in mine],
            "y": [getattr(one, value) for one in mine],
            "yaxis": axis,
            "texttemplate": f"%{{y:.{digits}f}}",
            "textposition": "outside",
            "textangle": 0,
            "hovertemplate": f"%{{x}} %, {plain(protocol.upper())}: %{{y:.3~f}}<extra></extra>",
            "cliponaxis": False,
            "marker": {
                "color": colour,
                "opacity": [0.4 if one.is_shared else 1.0 for one in mine],
                "pattern": {"shape": pattern, "fillmode": "overlay", "solidity": 0.2},
            },
        }
        for protocol, colour, pattern in dict.fromkeys(kinds)
        if (mine := [one for one in found if one.protocol == protocol])
    ]


def _most(found: Sequence[SwitchPointPhase]) -> dict[str, Any]:
    known = [one for one in found if one.max_staleness]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "largest staleness",
        "x": [f"{one.candidate_percent:.4g}" for one in known],
        "y": [one.max_staleness for one in known],
        "yaxis": "y2",
        "marker": {"symbol": "line-ew-open", "size": 18, "color": INK},
        "hovertemplate": "%{x} %: at most %{y}<extra></extra>",
    }


# Mark, colour and height on the line: what happens at the same time must not hide each other.
_MARKS = {
    "injected": ("star-triangle-down-open", INK, -0.3),
    "detected": ("triangle-up", SECOND, -0.1),
    "permanent": ("triangle-up-open", SECOND, -0.1),
    "lost": ("x-thin-open", SECOND, -0.1),
    "removed": ("x", SECOND, 0.1),
    "switched": ("diamond", FIRST, 0.1),
    "alarmed": ("octagon", SECOND, 0.1),
    "rebuilt": ("square", FIRST, 0.1),
    "resumed": ("square-open", FIRST, 0.1),
    "unsaved": ("hourglass-open", QUIET, 0.1),
    "restored": ("cross", POLICY, 0.3),
    "returned": ("cross-thin-open", POLICY, 0.3),
    "cleared": ("triangle-down", POLICY, 0.3),
}
_UNKNOWN_MARK = ("circle", QUIET, 0.0)


def events(data: ReportData) -> Figure:
    """When something happened to runs: stragglers, failures, and what was done about them.

    A line for each run, from its start to its end. The switch that every run makes is left out.

    Raises:
        UserError: Nothing happened, or plotly is missing.
    """
    runs = eventful_runs(data)
    if not runs:
        raise UserError("nothing happened to any run: no straggler, no failure")
    lines = range(1, len(runs) + 1)
    numbered = list(zip(lines, runs, strict=True))
    labels = [f"{line}: {run.trial.switch_percent:.4g} %" for line, run in numbered]
    return figure_of(
        [*(_span(line, run) for line, run in numbered), *_event_marks(runs)],
        x={"title": "training time in seconds", "rangemode": "tozero"},
        y={
            "title": "run: switch point",
            "tickvals": list(lines),
            "ticktext": labels,
            "range": [len(runs) + 0.7, 0.3],
            "showgrid": False,
        },
        height=170 + 44 * len(runs),
    )


def _span(line: int, run: ReportRun) -> dict[str, Any]:
    last = max(event.elapsed_seconds for event in run.events)
    return {
        "type": "scatter",
        "mode": "lines",
        "showlegend": False,
        "x": [0, max(last, run.trial.training_seconds or 0.0)],
        "y": [line, line],
        "line": {"color": "#c4c4c4", "width": 5},
        "hoverinfo": "skip",
    }


def _event_marks(runs: Sequence[ReportRun]) -> list[dict[str, Any]]:
    happened = [(line, event) for line, run in enumerate(runs, start=1) for event in run.events]
    trial_ids = [run.trial.trial_id for run in runs]
    traces = []
    for kind in dict.fromkeys(event.kind for _, event in happened):
        symbol, colour, aside = _MARKS.get(kind, _UNKNOWN_MARK)
        mine = [(line, event) for line, event in happened if event.kind == kind]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(kind),
                "x": [event.elapsed_seconds for _, event in mine],
                "y": [line + aside for line, _ in mine],
                "text": [plain(event.reason) for _, event in mine],
                "customdata": [trial_ids[line - 1] for line, _ in mine],
                "hovertemplate": f"{plain(kind)} after %{{x:.1f}} s<br>%{{text}}<extra></extra>",
                "marker": {"symbol": symbol, "size": 11, "color": colour},
            }
        )
    return traces
