"""What tests measured beside the metric that decides; pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.tables.table import Table
from syncswitch.searcher.text.values import percent_text, value_text
from syncswitch.storage.records.trial import CONVERGENCE_EVALUATIONS, Evaluation


def further_table(data: ReportData) -> Table:
    """Each further metric at each switch point: the mean of its sound runs' last five tests."""
    found: dict[float, list[dict[str, float]]] = {}
    for run in data.compared:
        if run.is_sound and run.whole is not None and (last := _last(run.whole.evaluations)):
            found.setdefault(run.trial.candidate_percent or 0.0, []).append(last)
    names = list(dict.fromkeys(name for runs in found.values() for run in runs for name in run))
    rows = tuple(
        (
            percent_text(percent),
            str(len(found[percent])),
            *(value_text(_mean(found[percent], name), ".4g") for name in names),
        )
        for percent in sorted(found, reverse=True)
    )
    return Table("Further metrics, which decide nothing", ("switch at", "runs", *names), rows)


def _last(evaluations: Sequence[Evaluation]) -> dict[str, float]:
    tests = [dict(one.further) for one in evaluations[-CONVERGENCE_EVALUATIONS:]]
    names = {name: None for test in tests for name in test}
    return {name: statistics.fmean(test[name] for test in tests if name in test) for name in names}


def _mean(runs: Sequence[dict[str, float]], name: str) -> float | None:
    known = [run[name] for run in runs if name in run]
    return statistics.fmean(known) if known else None
