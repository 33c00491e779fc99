"""Bands: what runs of the first protocol alone measured, and guards that compare others with it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from syncswitch.searcher.search.recorded import usable_runs
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.records.guard import Band, BandPoint, FailedSwitch, GuardOutcome
from syncswitch.storage.records.trial import (
    BASELINE_PERCENT,
    Evaluation,
    RunEvent,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.replay import RecordedRun, whole_runs
from syncswitch.trainers.run.guard import Guard

_MOST_POINTS = 200


def measured_band(
    target_accuracy: float, threshold: float, curves: Iterable[Sequence[Evaluation]]
) -> Band:
    """Returns mean and deviation of the accuracy of runs of the first protocol along their way.

    The points are the tests of the longest run. A run that was not tested there counts with the
    accuracy interpolated between its neighbouring tests, and a stopped run as far as it went. Of
    more than 200 points, 200 are kept, evenly spread, the last one among them.

    Runs that diverged are not among them.
    """
    known = [
        ([test.worker_step for test in curve], [test.accuracy for test in curve])
        for curve in curves
        if curve
    ]
    longest, _ = max(known, key=lambda curve: (curve[0][-1], -len(curve[0])), default=((), ()))
    kept = np.linspace(0, len(longest) - 1, min(len(longest), _MOST_POINTS)).round().astype(int)
    points = tuple(_point(longest[place], known) for place in kept)
    return Band(target_accuracy, threshold, len(known), points)


def _point(worker_step: int, curves: Iterable[tuple[list[int], list[float]]]) -> BandPoint:
    accuracies = [
        float(np.interp(worker_step, steps, tests))
        for steps, tests in curves
        if steps[0] <= worker_step <= steps[-1]
    ]
    deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
    return BandPoint(worker_step, statistics.fmean(accuracies), deviation)


def guard_of(
    strategy: Strategy,
    known: Sequence[Observation],
    spec: TrialSpec,
    completed: Callable[[], Mapping[int, RecordedRun]],
) -> Guard | None:
    """Returns the guard of a search's run, which ends it as soon as its switch fails.

    None if the search wants to know how much a failing run loses, if runs are made to their end,
    and as long as the accuracy of the first protocol is unknown.
    """
    is_candidate = spec.switch_percent < strategy.highest_percent
    is_wanted = is_candidate and strategy.early_stop and strategy.judges_single_runs
    if not is_wanted or not spec.conditions.is_undisturbed:
        return None
    baseline = [
        run.trial_number
        for run in known
        if run.switch_percent == strategy.highest_percent and not run.diverged
    ]
    target = strategy.progress(known).target_accuracy if baseline else None
    if target is None:
        return None
    runs = completed()
    curves = (runs[number].evaluations for number in baseline if number in runs)
    band = measured_band(target, strategy.threshold, curves)
    return Guard(band, spec.identity.total_worker_steps, spec.identity.decided_by)


def comparison_band(
    store: TrialStore, strategy: Strategy, spec: TrialSpec, trainer: str
) -> Band | None:
    """Returns the band of a guarded comparison, from all runs of the first protocol alone.

    None if the comparison is not guarded, for the runs of the first protocol alone, and without
    any of these.
    """
    is_guarded = isinstance(strategy, ComparisonStrategy) and strategy.guarded
    if not is_guarded or spec.switch_percent >= BASELINE_PERCENT:
        return None
    usable = usable_runs(store, spec.identity, trainer, spec.conditions)
    rows = [row for row in usable if row.switch_percent == BASELINE_PERCENT and not row.diverged]
    accuracies = [row.converged_accuracy or 0.0 for row in rows]
    threshold: float | None = strategy.threshold
    if strategy.threshold_runs:
        threshold = measured_threshold(accuracies)
    if not rows or threshold is None:
        return None
    fingerprint = spec.identity.fingerprint
    stored = store.trials(fingerprint=fingerprint)
    complete = [row for row in stored if row.state == TrialState.COMPLETE]
    whole = whole_runs(complete, store.curves(fingerprint))
    curves = (whole[row.trial_id].evaluations for row in rows if row.trial_id in whole)
    return measured_band(statistics.fmean(accuracies), threshold, curves)


def alarmed(record: TrialRecord, alarm: RunEvent) -> TrialRecord:
    """Returns the record of a run with the alarm that ended it.

    Nothing is lost by that: whatever was trained is the price of the run.
    """
    accuracy = record.evaluations[-1].accuracy if record.evaluations else None
    failed = FailedSwitch(
        record.spec.switch_percent,
        alarm.reason,
        alarm.worker_step,
        alarm.elapsed_seconds,
        lost_seconds=0.0,
        accuracy=accuracy,
    )
    return replace(record, guard=GuardOutcome(None, (failed,)), events=(*record.events, alarm))
