"""The runs to which something happened; pure."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.searcher.report.data import ReportData, ReportRun
from syncswitch.trainers.run.event_text import is_remarkable

_MOST_RUNS = 20


def eventful_runs(data: ReportData) -> tuple[ReportRun, ...]:
    """The newest 20 of them, with the events that are more than the switch that was asked for.

    These are runs under all conditions, disturbed ones included.
    """
    runs = (replace(run, events=tuple(filter(is_remarkable, run.events))) for run in data.runs)
    return tuple(run for run in runs if run.events)[-_MOST_RUNS:]
