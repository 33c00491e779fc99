"""From stored trials to what a strategy sees of them; no other module makes observations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.strategies.planner import Key
from syncswitch.storage.database.engine import Database
from syncswitch.storage.metrics import seconds_at_pace
from syncswitch.storage.queries.search_costs import SearchCost, search_cost
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.optuna_tables import given_up_trials
from syncswitch.storage.trials.values import StoredTrial

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

REPLICATE = "replicate"
"""User attribute of Optuna's trials."""


def observations_of(rows: Iterable[StoredTrial]) -> list[Observation]:
    """The completed trials of a search, of those that count, in the order of their numbers."""
    found = [
        Observation(
            switch_percent=row.switch_percent,
            accuracy=row.converged_accuracy,
            diverged=bool(row.diverged),
            trial_number=row.trial_number,
            replicate=row.replicate,
            stopped_early=bool(row.stopped_early),
            plateau_accuracy=row.plateau_accuracy,
            cost=cost_of(row),
            alarmed=row.guard == "alarmed",
        )
        for row in rows
        if row.state == TrialState.COMPLETE
        and row.converged_accuracy is not None
        and row.trial_number is not None
    ]
    return sorted(found, key=lambda run: run.trial_number)


def read_observations(
    database: Database, study: str, rows: Mapping[int, StoredTrial]
) -> list[Observation]:
    """The completed trials of a search that one only looks at, of its trials by number."""
    given_up = given_up_trials(database, study)
    return observations_of(row for number, row in rows.items() if number not in given_up)


def observations_in_study(trials: Sequence[FrozenTrial], parameter: str) -> list[Observation]:
    """The completed trials of a study that is not a search of ours, by its parameter.

    An infinite value counts as diverged. Where nobody numbered the replicates, the trials of a
    switch point are numbered as they come.
    """
    return [
        Observation(
            switch_percent=percent,
            accuracy=float(trial.value) if math.isfinite(trial.value) else 0.0,
            diverged=bool(trial.user_attrs.get("diverged")) or not math.isfinite(trial.value),
            trial_number=trial.number,
            replicate=replicate,
        )
        for trial, percent, replicate in _chosen(trials, parameter, "COMPLETE", Counter())
        if trial.value is not None
    ]


def in_flight_runs(trials: Sequence[FrozenTrial], parameter: str) -> list[Key]:
    """Switch point and replicate of each trial that runs; one that has not chosen is left out.

    Where nobody numbered the replicates, they are those after the completed ones.
    """
    made: Counter[float] = Counter()
    for _ in _chosen(trials, parameter, "COMPLETE", made):
        pass
    running = _chosen(trials, parameter, "RUNNING", made)
    return [(percent, replicate) for _, percent, replicate in running]


def _chosen(
    trials: Iterable[FrozenTrial], parameter: str, state: str, made: Counter[float]
) -> Iterator[tuple[FrozenTrial, float, int]]:
    """Each trial in a state with its switch point and replicate; counts them at that point."""
    for trial in trials:
        value = trial.params.get(parameter)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        percent = float(value)
        if trial.state.name == state:
            yield trial, percent, int(trial.user_attrs.get(REPLICATE, made[percent]))
            made[percent] += 1


def cost_of(row: StoredTrial) -> TrialCost:
    """The cost of a run, from which that of another follows."""
    W = row.total_worker_steps
    return TrialCost(
        paid_seconds=max(0.0, row.paid_seconds or 0.0),
        first_seconds=seconds_at_pace(row.phases, row.first_protocol, W),
        second_seconds=seconds_at_pace(row.phases, row.second_protocol, W),
        reached_percent=min(100.0, 100.0 * row.worker_steps / W),
    )


def total_cost(identity: WorkloadIdentity, rows: Iterable[StoredTrial]) -> SearchCost:
    """The cost of all trials of a search together."""
    known = list(rows)
    phases = (phase for row in known for phase in row.phases)
    pace = seconds_at_pace(phases, identity.first_protocol, identity.total_worker_steps)
    return search_cost(known, pace)
