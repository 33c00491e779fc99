"""What the stored runs of a search say: what they measured, and whether anyone runs them.

No other module makes observations.
"""

from __future__ import annotations

import math
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import psutil

from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.strategies.planner import Key
from syncswitch.storage.database.engine import Database
from syncswitch.storage.metrics import seconds_at_pace
from syncswitch.storage.queries.search_costs import SearchCost, search_cost
from syncswitch.storage.records.job import Protocols, ScheduledJob
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.optuna_tables import given_up_trials
from syncswitch.storage.trials.values import Owner, StoredTrial

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

REPLICATE = "replicate"
"""User attribute of Optuna's trials that holds the replicate."""

ASKED = "syncswitch:asked"
"""System attribute with the switch point of a trial whose parameter has only values near it."""

NO_RESULT = ("FAIL", "PRUNED")

HEARTBEAT_SECONDS = 120.0
"""A searcher on another machine that is silent for longer counts as dead."""

_START_TIME_TOLERANCE_SECONDS = 2.0


def observations_of(rows: Iterable[StoredTrial]) -> list[Observation]:
    """The completed ones of these runs, in the order of their numbers."""
    runs = [
        Observation(
            switch_percent=row.switch_percent,
            accuracy=row.result.converged_accuracy,
            diverged=bool(row.result.diverged),
            trial_number=row.origin.trial_number,
            replicate=row.replicate,
            stopped_early=bool(row.result.stopped_early),
            plateau_accuracy=row.result.plateau_accuracy,
            cost=cost_of(row),
            alarmed=row.guard.state == "alarmed",
        )
        for row in rows
        if row.state == TrialState.COMPLETE
        and row.result.converged_accuracy is not None
        and row.origin.trial_number is not None
    ]
    return sorted(runs, key=lambda run: run.trial_number)


def read_observations(
    database: Database, study: str, rows: Mapping[int, StoredTrial], protocols: Protocols
) -> list[Observation]:
    """The completed runs of a search with some protocols, for those who only look at it."""
    given_up = given_up_trials(database, study)
    pair = protocols.first_protocol, protocols.second_protocol
    return observations_of(
        row for number, row in rows.items() if number not in given_up and row.counts_with(*pair)
    )


def observations_in_study(
    trials: Sequence[FrozenTrial], parameter: str, sign: float, most_failures: int
) -> list[Observation]:
    """Returns the completed trials of any Optuna study with this parameter.

    `sign` makes of a value an accuracy, of which more is better. An infinite value counts as
    diverged, and so does a switch point whose trials failed or were pruned `most_failures` times.
    """
    completed = [
        Observation(
            switch_percent=percent,
            accuracy=sign * float(trial.value) if math.isfinite(trial.value) else 0.0,
            diverged=bool(trial.user_attrs.get("diverged")) or not math.isfinite(trial.value),
            trial_number=trial.number,
            replicate=replicate,
        )
        for trial, percent, replicate in _chosen(trials, parameter)
        if trial.state.name == "COMPLETE" and trial.value is not None
    ]
    made = Counter(run.switch_percent for run in completed)
    failures: dict[float, list[int]] = defaultdict(list)
    for trial in trials:
        percent = _asked(trial, parameter)
        if percent is not None and trial.state.name in NO_RESULT:
            failures[percent].append(trial.number)
    given_up = [
        Observation(percent, 0.0, True, numbers[most_failures - 1], replicate=replicate)
        for percent, numbers in failures.items()
        if len(numbers) >= most_failures
        # Whichever of its runs would come next.
        for replicate in range(made[percent], max(most_failures, made[percent] + 1))
    ]
    return completed + given_up


def in_flight_runs(trials: Sequence[FrozenTrial], parameter: str) -> list[Key]:
    """Returns switch point and replicate of each running trial that has chosen them."""
    chosen = _chosen(trials, parameter)
    return [(percent, number) for trial, percent, number in chosen if trial.state.name == "RUNNING"]


def _chosen(
    trials: Sequence[FrozenTrial], parameter: str
) -> Iterator[tuple[FrozenTrial, float, int]]:
    """Yields trials with switch point and replicate: all complete ones, then the running ones.

    If nobody numbered the replicates, the trials of a switch point are numbered in this order.
    """
    made: Counter[float] = Counter()
    for state in ("COMPLETE", "RUNNING"):
        for trial in trials:
            percent = _asked(trial, parameter)
            if percent is not None and trial.state.name == state:
                yield trial, percent, int(trial.user_attrs.get(REPLICATE, made[percent]))
                made[percent] += 1


def _asked(trial: FrozenTrial, parameter: str) -> float | None:
    """Returns the switch point that a trial was asked for; None if it has no such number."""
    value = trial.params.get(parameter)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(trial.system_attrs.get(ASKED, value))


def cost_of(row: StoredTrial, second_protocol: str | None = None) -> TrialCost:
    """The cost and the pace of a run; in this second protocol, None for its own."""
    W, second = row.total_worker_steps, second_protocol or row.job.second_protocol
    seconds = seconds_at_pace(row.phases, second, W)
    if seconds is None and (step_seconds := (row.step_seconds or {}).get(second)) is not None:
        seconds = W * step_seconds  # in what has failed, and is no phase any more
    return TrialCost(
        paid_seconds=max(0.0, row.times.paid_seconds or 0.0),
        first_seconds=seconds_at_pace(row.phases, row.job.first_protocol, W),
        second_seconds=seconds,
        reached_percent=min(100.0, 100.0 * row.worker_steps / W),
    )


def total_cost(identity: ScheduledJob, rows: Iterable[StoredTrial]) -> SearchCost:
    """The cost of all runs of a search together."""
    runs = list(rows)
    phases = (phase for row in runs for phase in row.phases)
    pace = seconds_at_pace(phases, identity.first_protocol, identity.total_worker_steps)
    return search_cost(runs, pace)


def is_alive(owner: Owner) -> bool:
    """Returns whether a process of this machine still runs, and not another with its number."""
    try:
        process = psutil.Process(owner.process_id)
        started_at = process.create_time()
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return abs(started_at - owner.process_started_at) <= _START_TIME_TOLERANCE_SECONDS


def is_run_by_anyone(row: StoredTrial, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> bool:
    """Returns whether a run under way goes on, by its process here or its heartbeat elsewhere."""
    owner = row.owner
    if owner is None or row.heartbeat_at is None:
        return False
    if owner.host == socket.gethostname():
        return is_alive(owner)
    silent = (datetime.now(timezone.utc) - row.heartbeat_at).total_seconds()
    return silent <= heartbeat_seconds


def state_of(row: StoredTrial) -> TrialState:
    """Returns the stored state, or `stale` for one under way whose process is dead."""
    is_stale = row.state == TrialState.RUNNING and not is_run_by_anyone(row)
    return TrialState.STALE if is_stale else row.state
