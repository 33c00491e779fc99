"""Recorded runs of a job: those that count again, and what the first protocol alone measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

import numpy as np

from syncswitch.searcher.search.plan import SearchPlan, replicate_seed
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.sweep import SweepStrategy
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.job import RunConditions, ScheduledJob
from syncswitch.storage.records.trial import (
    BASELINE_PERCENT,
    Evaluation,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, StoredTrial
from syncswitch.trainers.replay import RecordedRun, whole_runs

_MOST_POINTS = 200


def completed_runs(
    store: TrialStore, study: str, rows: Iterable[StoredTrial]
) -> dict[int, RecordedRun]:
    """A search's complete runs, from their first worker-step, by trial number."""
    complete = [row for row in rows if row.state == TrialState.COMPLETE]
    if not complete:
        return {}
    whole = whole_runs(complete, store.curves(complete[0].job.fingerprint, study=study))
    return {
        row.origin.trial_number: whole[row.trial_id]
        for row in complete
        if row.trial_id in whole and row.origin.trial_number is not None
    }


def usable_runs(
    store: TrialStore,
    identity: ScheduledJob,
    trainer: str,
    conditions: RunConditions,
    *,
    guarded: bool = False,
) -> list[StoredTrial]:
    """Returns the recorded runs of a job that may be compared with each other.

    They belong to searches and evaluations by the same kind of trainer under the same conditions,
    and were not stopped, because nobody knows how accurate a stopped run would have become. If a
    switch point has several runs with the same seed, which may be the same training, the first one
    counts. Runs that a guard sent back count among guarded runs only, where all but the baseline
    had a guard.
    """
    searches = store.searches(workload=identity.fingerprint)
    studies = {search.study for search in searches if search.trainer == trainer}
    first_rows: dict[tuple[float, int | None], StoredTrial] = {}
    for row in store.trials(fingerprint=identity.fingerprint, protocols=identity.protocols):
        is_whole = row.state == TrialState.COMPLETE and not row.result.stopped_early
        if guarded:
            is_alike = row.guard.state != "off" or row.switch_percent >= BASELINE_PERCENT
        else:
            is_alike = row.guard.state != "alarmed"
        if row.origin.study in studies and is_whole and is_alike and row.conditions == conditions:
            first_rows.setdefault((row.switch_percent, row.seed), row)
    return list(first_rows.values())


def sound_baseline(runs: Iterable[Observation], highest_percent: float) -> list[int]:
    """The numbers of the runs of the first protocol alone that did not diverge."""
    alone = (run for run in runs if run.switch_percent == highest_percent)
    return [run.trial_number for run in alone if not run.diverged]


def measured_band(
    target_accuracy: float, threshold: float, curves: Iterable[Sequence[Evaluation]]
) -> Band:
    """Mean and deviation of the accuracy of sound runs of the first protocol along their way.

    The points are the evaluations of the longest run. A run without one there counts with the
    accuracy interpolated between its neighbouring ones, and a stopped run as far as it went. Of
    more than 200 points, 200 are kept, evenly spread, the last one among them.
    """
    lines = [
        ([one.worker_step for one in curve], [one.accuracy for one in curve])
        for curve in curves
        if curve
    ]
    longest, _ = max(lines, key=lambda curve: (curve[0][-1], -len(curve[0])), default=((), ()))
    kept = np.linspace(0, len(longest) - 1, min(len(longest), _MOST_POINTS)).round().astype(int)
    points = []
    for worker_step in (longest[place] for place in kept):
        accuracies = [
            float(np.interp(worker_step, steps, values))
            for steps, values in lines
            if steps[0] <= worker_step <= steps[-1]
        ]
        deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
        points.append(BandPoint(worker_step, statistics.fmean(accuracies), deviation))
    return Band(target_accuracy, threshold, len(lines), tuple(points))


def sweep_band(store: TrialStore, strategy: Strategy, spec: TrialSpec, trainer: str) -> Band | None:
    """The band of a guarded sweep, from all runs of the first protocol alone.

    None for these runs, without any of them, and if the sweep is not guarded.
    """
    is_searched = strategy.seeks_switch or not strategy.is_guarded
    if is_searched or spec.switch_percent >= BASELINE_PERCENT:
        return None
    usable = usable_runs(store, spec.identity, trainer, spec.conditions)
    rows = [
        row for row in usable if row.switch_percent == BASELINE_PERCENT and not row.result.diverged
    ]
    accuracies = [row.result.converged_accuracy or 0.0 for row in rows]
    threshold: float | None = strategy.threshold
    if strategy.allowed.is_from_runs:
        threshold = measured_threshold(accuracies, runs=strategy.allowed.runs)
    if not rows or threshold is None:
        return None
    fingerprint = spec.identity.fingerprint
    stored = store.trials(fingerprint=fingerprint)
    complete = [row for row in stored if row.state == TrialState.COMPLETE]
    whole = whole_runs(complete, store.curves(fingerprint))
    curves = (whole[row.trial_id].evaluations for row in rows if row.trial_id in whole)
    return measured_band(statistics.fmean(accuracies), threshold, curves)


def recorded_result(store: TrialStore, spec: TrialSpec, trainer: str) -> TrialRecord | None:
    """The record of this very run if a sweep made it, at no cost.

    Searches do not answer for each other, so that the result of one still says something about the
    other.
    """
    if spec.band is not None:
        return None
    wanted = (spec.switch_percent, spec.seed)
    for row in _compared_runs(store, spec.identity, trainer, spec.conditions):
        if (row.switch_percent, row.seed) == wanted:
            return record_of(store, row, spec)
    return None


def recorded_replicates(
    store: TrialStore, identity: ScheduledJob, plan: SearchPlan
) -> tuple[tuple[float, int], ...]:
    """Switch point and replicate of each run that `recorded_result` would find.

    The latest switch point comes first: without the first protocol alone nothing is compared.
    """
    grid = plan.strategy.grid()
    rows = _compared_runs(store, identity, plan.trainer, plan.conditions)
    replicates = {
        (row.switch_percent, row.replicate)
        for row in rows
        if row.switch_percent in grid and row.seed == replicate_seed(plan.base_seed, row.replicate)
    }
    return tuple(sorted(replicates, key=lambda key: (-key[0], key[1])))


def _compared_runs(
    store: TrialStore, identity: ScheduledJob, trainer: str, conditions: RunConditions
) -> list[StoredTrial]:
    searches = store.searches(workload=identity.fingerprint)
    compared = {one.study for one in searches if one.strategy == SweepStrategy().name}
    if not compared:
        return []
    rows = usable_runs(store, identity, trainer, conditions)
    return [row for row in rows if row.origin.study in compared]


def record_of(store: TrialStore, row: StoredTrial, spec: TrialSpec) -> TrialRecord:
    """The record of a complete run of a search, as one that costs nothing now."""
    assert row.origin.study is not None
    assert row.origin.trial_number is not None
    assert row.result.converged_accuracy is not None
    now = datetime.now(timezone.utc)
    seconds = row.times.training_seconds or 0.0
    return TrialRecord(
        spec=spec,
        worker_steps=row.worker_steps,
        evaluations=tuple(store.evaluations(row.origin.study, row.origin.trial_number)),
        phases=row.phases,
        converged_accuracy=row.result.converged_accuracy,
        converged=bool(row.result.converged),
        diverged=bool(row.result.diverged),
        stopped_early=bool(row.result.stopped_early),
        training_seconds=seconds,
        inherited_seconds=seconds,
        switch_overhead_seconds=row.times.switch_overhead_seconds or 0.0,
        started_at=now,
        ended_at=now,
        host=row.host or Owner.current().host,
        software=software_versions(),
        events=tuple(store.events(row.origin.study, row.origin.trial_number)),
    )
