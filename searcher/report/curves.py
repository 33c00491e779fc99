"""Which curves of accuracy a figure shows; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.report.data import ReportData, ReportRun
from syncswitch.storage.queries.summaries import BASELINE_PERCENT
from syncswitch.trainers.replay.recording import RecordedRun

_MOST_POINTS = 300
_MOST_RUNS = 5  # of a switch point


@dataclass(frozen=True, slots=True)
class DrawnCurve:
    """One run of one of the switch points that are compared.

    Attributes:
        role: `first` (the first protocol alone), `policy` (or what may become it), or `early` (the
            earliest switch tried).
        candidate_percent: Of the run.
        name: Of the run.
        is_typical: It has the median accuracy of its switch point.
        diverged: The training blew up.
        seconds: Training time of each test.
        accuracies: What was measured then.
        switch: Time and accuracy when its second protocol began; None where it never did.
    """

    role: str
    candidate_percent: float
    name: str
    is_typical: bool
    diverged: bool
    seconds: tuple[float, ...]
    accuracies: tuple[float, ...]
    switch: tuple[float, float] | None


def drawn_curves(data: ReportData) -> list[DrawnCurve]:
    """Of each switch point that is compared at most 5 runs, the typical one last."""
    by_switch_point: dict[float, list[tuple[ReportRun, RecordedRun]]] = {}
    for run in data.compared:
        if run.whole is not None and len(run.whole.evaluations) > 1:
            percent = run.trial.candidate_percent or 0.0
            by_switch_point.setdefault(percent, []).append((run, run.whole))
    return [
        curve
        for role, percent in _roles(data, sorted(by_switch_point))
        for curve in _curves(role, percent, by_switch_point[percent])
    ]


def _roles(data: ReportData, percents: Sequence[float]) -> list[tuple[str, float]]:
    """What is compared, of the switch points that have curves."""
    middle = _middle(data)
    roles: dict[float, str] = {}
    if BASELINE_PERCENT in percents:
        roles[BASELINE_PERCENT] = "first"
    if middle is not None and middle in percents:
        roles.setdefault(middle, "policy")
    if percents:
        roles.setdefault(percents[0], "early")
    return [(role, percent) for percent, role in roles.items()]


def _middle(data: ReportData) -> float | None:
    """The policy; where there is none, the earliest switch whose mean is accepted."""
    if data.answer is not None:
        return data.answer.switch_percent
    least = math.inf if data.acceptance is None else data.acceptance.least_accuracy
    kept = (
        one.candidate_percent
        for one in data.switch_points
        if not one.diverged_runs and (one.mean_accuracy or 0.0) >= least
    )
    return min(kept, default=None)


def _curves(
    role: str, percent: float, runs: Sequence[tuple[ReportRun, RecordedRun]]
) -> list[DrawnCurve]:
    middle = statistics.median_low(run.accuracy for _, run in runs)
    typical = next(run for run in runs if run[1].accuracy == middle)
    others = [run for run in runs if run is not typical][-(_MOST_RUNS - 1) :]
    return [
        _curve(role, percent, run, whole, is_typical=run is typical[0])
        for run, whole in (*others, typical)
    ]


def _curve(
    role: str, percent: float, run: ReportRun, whole: RecordedRun, *, is_typical: bool
) -> DrawnCurve:
    tests = [one for one in whole.evaluations if math.isfinite(one.accuracy)]
    every = math.ceil(len(tests) / _MOST_POINTS) or 1
    shown = [*tests[:-1:every], *tests[-1:]]
    return DrawnCurve(
        role=role,
        candidate_percent=percent,
        name=run.name,
        is_typical=is_typical,
        diverged=whole.diverged,
        seconds=tuple(one.elapsed_seconds for one in shown),
        accuracies=tuple(one.accuracy for one in shown),
        switch=_switch(whole),
    )


def _switch(whole: RecordedRun) -> tuple[float, float] | None:
    """On the curve, between the tests before and after."""
    import numpy as np

    if len(whole.phases) < 2 or not whole.evaluations:
        return None
    seconds = whole.clock().seconds_at(whole.switch_worker_step)
    times = [one.elapsed_seconds for one in whole.evaluations]
    accuracies = [one.accuracy for one in whole.evaluations]
    return seconds, float(np.interp(seconds, times, accuracies))
