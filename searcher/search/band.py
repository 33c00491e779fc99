"""Bands: what runs of the first protocol alone measured, and guards that compare others to it."""

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
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.trainers.replay.recording import whole_runs
from syncswitch.trainers.run.guard import Guard

_MOST_POINTS = 200


def measured_band(
    target_accuracy: float, threshold: float, curves: Iterable[Sequence[Evaluation]]
) -> Band:
    """The band of what runs of the first protocol alone tested after the same worker-steps.

    A test between two of another run is compared with what lies between them. A run that was
    stopped counts as far as it went; the longest one says where the tests are. Of very many tests
    200 stay, evenly spread, the last one among them.

    Args:
        target_accuracy: A.
        threshold: beta.
        curves: All tests of each run that did not diverge, in the order of their worker-steps.
    """
    known = [
        ([test.worker_step for test in curve], [test.accuracy for test in curve])
        for curve in curves
        if curve
    ]
    longest, _ = max(known, key=lambda curve: (curve[0][-1], -len(curve[0])), default=((), ()))
    points = tuple(_point(step, known) for step in _thin(longest))
    return Band(target_accuracy, threshold, len(known), points)


def _thin(steps: Sequence[int]) -> list[int]:
    if len(steps) <= _MOST_POINTS:
        return list(steps)
    kept = np.linspace(0, len(steps) - 1, _MOST_POINTS).round().astype(int)
    return [steps[position] for position in kept]


def _point(worker_step: int, curves: Iterable[tuple[list[int], list[float]]]) -> BandPoint:
    accuracies = [
        float(np.interp(worker_step, steps, tests))
        for steps, tests in curves
        if steps[0] <= worker_step <= steps[-1]
    ]
    deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
    return BandPoint(worker_step, statistics.fmean(accuracies), deviation)


def curves_of(
    store: TrialStore, study: str, rows: Mapping[int, StoredTrial]
) -> dict[int, tuple[Evaluation, ...]]:
    """All tests of each complete run of a search by its number, those before a fork included."""
    complete = [row for row in rows.values() if row.state == TrialState.COMPLETE]
    if not complete:
        return {}
    whole = whole_runs(complete, store.curves(complete[0].fingerprint, study=study))
    return {
        number: whole[row.trial_id].evaluations
        for number, row in rows.items()
        if row.trial_id in whole
    }


def guard_of(
    strategy: Strategy,
    known: Sequence[Observation],
    spec: TrialSpec,
    curves: Callable[[], Mapping[int, Sequence[Evaluation]]],
) -> Guard | None:
    """Return the guard of a run of a search that knew these runs when it was planned.

    None where a failed run still says how much it loses, where runs are made to their end, and
    as long as nobody knows how the first protocol does. `curves` gives all tests of each run.
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
    tests = curves()
    band = measured_band(target, strategy.threshold, (tests.get(one, ()) for one in baseline))
    return Guard(band, spec.identity.total_worker_steps, spec.identity.decided_by)


def comparison_band(
    store: TrialStore, strategy: Strategy, spec: TrialSpec, trainer: str
) -> Band | None:
    """Return the band for a run of a guarded comparison, of all runs of the first protocol alone.

    None where the comparison is not guarded, for these runs themselves, and without any of them.
    """
    is_guarded = isinstance(strategy, ComparisonStrategy) and strategy.guarded
    if not is_guarded or spec.switch_percent >= BASELINE_PERCENT:
        return None
    usable = usable_runs(store, spec.identity, trainer, spec.conditions)
    rows = [row for row in usable if row.switch_percent == BASELINE_PERCENT and not row.diverged]
    if not rows:
        return None
    fingerprint = spec.identity.fingerprint
    complete = [
        row for row in store.trials(fingerprint=fingerprint) if row.state == TrialState.COMPLETE
    ]
    whole = whole_runs(complete, store.curves(fingerprint))
    baseline = [whole[row.trial_id] for row in rows if row.trial_id in whole]
    accuracies = [row.converged_accuracy or 0.0 for row in rows]
    threshold = strategy.threshold
    if strategy.threshold_runs:
        measured = measured_threshold(accuracies)
        if measured is None:
            return None
        threshold = measured
    target = statistics.fmean(accuracies)
    return measured_band(target, threshold, (run.evaluations for run in baseline))


def alarmed(record: TrialRecord, alarm: RunEvent) -> TrialRecord:
    """Return the record of a run with what its guard found.

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
    return replace(
        record,
        guard=GuardOutcome(None, (failed,)),
        events=(*record.events, alarm),
    )
