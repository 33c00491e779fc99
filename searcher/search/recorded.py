"""Recorded runs of a job that count again, so that nobody makes them twice."""

from __future__ import annotations

from datetime import datetime, timezone

from syncswitch.searcher.search.plan import SearchPlan, replicate_seed
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord, TrialSpec, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, StoredTrial


def usable_runs(
    store: TrialStore,
    identity: WorkloadIdentity,
    trainer: str,
    conditions: RunConditions,
    *,
    guarded: bool = False,
) -> list[StoredTrial]:
    """The recorded runs of a job that may be compared with each other.

    They are of searches and evaluations, by the same kind of trainer, under the same conditions,
    made to their end: how accurate a stopped run would have become is not known. Of a switch
    point's runs with the same seed, which may be one and the same training, the first counts. What
    a guard sent back counts among guarded runs alone, where all but the baseline had one.
    """
    searches = store.searches(workload=identity.fingerprint)
    studies = {search.study for search in searches if search.trainer == trainer}
    found: dict[tuple[float, int | None], StoredTrial] = {}
    for row in store.trials(fingerprint=identity.fingerprint):
        is_whole = row.state == TrialState.COMPLETE and not row.stopped_early
        percent = row.switch_percent
        is_alike = row.conditions == conditions
        if guarded:
            is_alike = is_alike and (row.guard != "off" or percent >= BASELINE_PERCENT)
        else:
            is_alike = is_alike and row.guard != "alarmed"
        if row.study in studies and is_whole and is_alike:
            found.setdefault((row.switch_percent, row.seed), row)
    return list(found.values())


def recorded_result(store: TrialStore, spec: TrialSpec, trainer: str) -> TrialRecord | None:
    """Return the record of this very run if a sweep or an evaluation made it; it costs nothing now.

    Searches do not answer for each other: what one of them finds is to say something about the
    other.

    Args:
        store: Of the runs.
        spec: The run that is wanted. Its seed tells the run; where it would start does not matter.
        trainer: Kind of trainer: runs of other kinds do not count.

    Returns:
        None where there is no such run.
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
    """Switch point and replicate of each run of a search that `recorded_result` would find.

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
    """The usable runs of sweeps and evaluations."""
    searches = store.searches(workload=identity.fingerprint)
    compared = {one.study for one in searches if one.strategy == ComparisonStrategy().name}
    if not compared:
        return []
    rows = usable_runs(store, identity, trainer, conditions)
    return [row for row in rows if row.study in compared]


def record_of(store: TrialStore, row: StoredTrial, spec: TrialSpec) -> TrialRecord:
    """The record of a complete run of a search, as one that costs nothing now."""
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
