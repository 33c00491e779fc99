"""Recorded runs of a job that count again, so that nobody makes them twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from syncswitch.searcher.search.plan import SearchPlan, replicate_seed
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord, TrialSpec, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, StoredTrial
from syncswitch.trainers.replay import RecordedRun, whole_runs


def completed_runs(
    store: TrialStore, study: str, rows: Iterable[StoredTrial]
) -> dict[int, RecordedRun]:
    """Returns a search's complete runs, from their first worker-step, by trial number."""
    complete = [row for row in rows if row.state == TrialState.COMPLETE]
    if not complete:
        return {}
    whole = whole_runs(complete, store.curves(complete[0].fingerprint, study=study))
    return {
        row.trial_number: whole[row.trial_id]
        for row in complete
        if row.trial_id in whole and row.trial_number is not None
    }


def usable_runs(
    store: TrialStore,
    identity: WorkloadIdentity,
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
    found: dict[tuple[float, int | None], StoredTrial] = {}
    for row in store.trials(fingerprint=identity.fingerprint):
        is_whole = row.state == TrialState.COMPLETE and not row.stopped_early
        if guarded:
            is_alike = row.guard != "off" or row.switch_percent >= BASELINE_PERCENT
        else:
            is_alike = row.guard != "alarmed"
        if row.study in studies and is_whole and is_alike and row.conditions == conditions:
            found.setdefault((row.switch_percent, row.seed), row)
    return list(found.values())


def recorded_result(store: TrialStore, spec: TrialSpec, trainer: str) -> TrialRecord | None:
    """Returns the record of this very run if a sweep made it.

    It costs nothing now. Searches do not answer for each other, so that the result of one still
    says something about the other.
    """
    if spec.band is not None:
        return None
    wanted = (spec.switch_percent, spec.seed)
    for row in _compared_runs(store, spec.identity, trainer, spec.conditions):
        if (row.switch_percent, row.seed) == wanted:
            return record_of(store, row, spec)
    return None


def recorded_replicates(
    store: TrialStore, identity: WorkloadIdentity, plan: SearchPlan
) -> tuple[tuple[float, int], ...]:
    """Returns switch point and replicate of each run that `recorded_result` would find.

    The latest switch point comes first: without the first protocol alone nothing is compared.
    """
    grid = plan.strategy.grid()
    rows = _compared_runs(store, identity, plan.trainer, plan.conditions)
    found = {
        (row.switch_percent, row.replicate)
        for row in rows
        if row.switch_percent in grid and row.seed == replicate_seed(plan.base_seed, row.replicate)
    }
    return tuple(sorted(found, key=lambda key: (-key[0], key[1])))


def _compared_runs(
    store: TrialStore, identity: WorkloadIdentity, trainer: str, conditions: RunConditions
) -> list[StoredTrial]:
    """Returns the usable runs of sweeps and evaluations."""
    searches = store.searches(workload=identity.fingerprint)
    compared = {one.study for one in searches if one.strategy == ComparisonStrategy().name}
    if not compared:
        return []
    rows = usable_runs(store, identity, trainer, conditions)
    return [row for row in rows if row.study in compared]


def baseline_of_pairs(
    store: TrialStore, studies: Sequence[str], spec: TrialSpec
) -> TrialRecord | None:
    """Returns the record of this run if it is of the first protocol alone and another pair made it.

    It costs nothing now.
    """
    if spec.switch_percent < BASELINE_PERCENT:
        return None
    for study in studies:
        rows = store.trials(study=study)
        runs = completed_runs(store, study, rows)
        for row in rows:
            is_it = row.switch_percent == BASELINE_PERCENT and row.seed == spec.seed
            if is_it and row.trial_number in runs:
                run = runs[row.trial_number]
                found = record_of(store, row, spec)
                return replace(found, evaluations=run.evaluations, phases=run.phases)
    return None


def record_of(store: TrialStore, row: StoredTrial, spec: TrialSpec) -> TrialRecord:
    """Returns the record of a complete run of a search, as one that costs nothing now."""
    assert row.study is not None
    assert row.trial_number is not None
    assert row.converged_accuracy is not None
    now = datetime.now(timezone.utc)
    seconds = row.training_seconds or 0.0
    return TrialRecord(
        spec=spec,
        worker_steps=row.worker_steps,
        evaluations=tuple(store.evaluations(row.study, row.trial_number)),
        phases=row.phases,
        converged_accuracy=row.converged_accuracy,
        converged=bool(row.converged),
        diverged=bool(row.diverged),
        stopped_early=bool(row.stopped_early),
        training_seconds=seconds,
        inherited_seconds=seconds,
        switch_overhead_seconds=row.switch_overhead_seconds or 0.0,
        started_at=now,
        ended_at=now,
        host=row.host or Owner.current().host,
        software=software_versions(),
        events=tuple(store.events(row.study, row.trial_number)),
    )
