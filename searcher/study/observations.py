"""From what a run measured to what a strategy sees of it: for searches and onlookers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from syncswitch.searcher.strategies.base import Observation, RunCost, Strategy
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.storage.database.engine import Database
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import PhaseRecord, TrialSpec
from syncswitch.storage.trials.optuna_tables import given_up_trials
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.replay.recording import RecordedRun, whole_runs


def measures(
    strategy: Strategy, identity: WorkloadIdentity, row: StoredTrial, whole: RecordedRun | None
) -> dict[str, Any]:
    """What Optuna's study keeps of a run beside its accuracy, as JSON values.

    Args:
        strategy: Of the search.
        identity: The job.
        row: The run, completed.
        whole: The same from its first worker-step on; None where a part of it is not known, or
            the strategy stops no run.
    """
    W = identity.total_worker_steps
    paid = (row.training_seconds or 0.0) - (row.inherited_seconds or 0.0)
    return {
        "paid_seconds": max(0.0, paid),
        "first_seconds": _whole_seconds(row.phases, identity.first_protocol, W),
        "second_seconds": _whole_seconds(row.phases, identity.second_protocol, W),
        "reached_percent": min(100.0, 100.0 * row.worker_steps / W),
        "stopped_early": bool(row.stopped_early),
        "plateau_accuracy": _plateau_accuracy(strategy, identity, row, whole),
    }


def _plateau_accuracy(
    strategy: Strategy, identity: WorkloadIdentity, row: StoredTrial, whole: RecordedRun | None
) -> float | None:
    """What a run that was made to its end would have measured had it been stopped."""
    if whole is None or not strategy.early_stop or row.stopped_early or row.diverged:
        return None
    spec = TrialSpec(identity, row.switch_percent, row.seed or 0, row.replicate)
    stop = StopRule.of(strategy, identity.learning_rate_boundaries)
    return stop.plateau_accuracy(whole.evaluations, planned_switch_worker_step(spec))


def planned_switch_worker_step(spec: TrialSpec) -> int:
    """Where the second protocol begins; 0 where it never does."""
    switch = switch_worker_step(spec)
    return 0 if switch >= spec.identity.total_worker_steps else switch


def observation(
    switch_percent: float,
    accuracy: float,
    *,
    diverged: bool,
    trial_number: int,
    replicate: int,
    measured: Mapping[str, Any] | None,
) -> Observation:
    """A run as a strategy sees it.

    Args:
        switch_percent: The switch point.
        accuracy: Converged accuracy.
        diverged: Whether the training blew up.
        trial_number: In its study.
        replicate: Of the switch point.
        measured: What `measures` says of it; None where nobody kept it.
    """
    values = dict(measured or {})
    stopped_early = bool(values.pop("stopped_early", False))
    plateau_accuracy = values.pop("plateau_accuracy", None)
    return Observation(
        switch_percent=switch_percent,
        accuracy=accuracy,
        diverged=diverged,
        trial_number=trial_number,
        replicate=replicate,
        stopped_early=stopped_early,
        plateau_accuracy=plateau_accuracy,
        cost=RunCost(**values) if values else None,
    )


def observations_of(
    strategy: Strategy,
    identity: WorkloadIdentity,
    rows: Mapping[int, StoredTrial],
    whole: Mapping[int, RecordedRun],
) -> list[Observation]:
    """The completed runs of a search as its strategy sees them.

    Args:
        strategy: Of the search.
        identity: Its job.
        rows: Its runs by their number in it.
        whole: What `read_whole_runs` has of them.
    """
    return [
        observation(
            row.switch_percent,
            row.converged_accuracy,
            diverged=bool(row.diverged),
            trial_number=number,
            replicate=row.replicate,
            measured=measures(strategy, identity, row, whole.get(row.trial_id)),
        )
        for number, row in sorted(rows.items())
        if row.state == "complete" and row.converged_accuracy is not None
    ]


def read_observations(
    database: Database,
    strategy: Strategy,
    identity: WorkloadIdentity,
    study: str,
    rows: Mapping[int, StoredTrial],
) -> list[Observation]:
    """The completed runs of a search as its strategy sees them, for whoever only looks.

    Args:
        database: Holds them.
        strategy: Of the search.
        identity: Its job.
        study: Its name.
        rows: Its runs by their number in it, read before.
    """
    given_up = given_up_trials(database, study)
    counted = {number: row for number, row in rows.items() if number not in given_up}
    whole = read_whole_runs(TrialStore(database), strategy, study, rows)
    return observations_of(strategy, identity, counted, whole)


def read_whole_runs(
    store: TrialStore, strategy: Strategy, study: str, rows: Mapping[int, StoredTrial]
) -> dict[int, RecordedRun]:
    """The completed runs of a search from their first worker-step on, by `trial_id`.

    There are none where the strategy stops no run: then nobody needs to look at their curves.

    Args:
        store: Holds them.
        strategy: Of the search.
        study: Its name.
        rows: Its runs, read before.
    """
    complete = [row for row in rows.values() if row.state == "complete"]
    if not (complete and strategy.early_stop):
        return {}
    return whole_runs(complete, store.curves(complete[0].fingerprint, study=study))


def _whole_seconds(
    phases: Sequence[PhaseRecord], protocol: str, total_worker_steps: int
) -> float | None:
    """A whole training with one protocol at the pace of these phases."""
    mine = [phase for phase in phases if phase.protocol == protocol]
    steps = sum(phase.end_worker_step - phase.start_worker_step for phase in mine)
    seconds = math.fsum(phase.seconds for phase in mine)
    return total_worker_steps * seconds / steps if steps and seconds else None
