"""Fills a database as years of searches and imports would, with generated values."""

from __future__ import annotations

import csv
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from sqlalchemy import insert, text

from syncswitch.storage.database.engine import Database
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.job import Job, Protocols, Recipe, ScheduledJob
from syncswitch.storage.records.metric import DescribedMetric
from syncswitch.storage.records.trial import Evaluation
from syncswitch.storage.tables.policies import ALIASES, EVIDENCE, POLICIES
from syncswitch.storage.tables.trials import PHASES, SEARCHES, TRIALS, WORKLOADS
from syncswitch.storage.trials.evaluations import add_evaluations

NAMES = 100
SETTINGS = (100.0, 50.0, 25.0, 12.5)
RUNS = 5
TRIALS_PER_SEARCH = RUNS * len(SETTINGS)
IMPORTED_ONE_IN = 5
WORKER_STEPS = 64_000

_START = datetime(2023, 1, 1, tzinfo=timezone.utc)
_SEARCHES_PER_TRANSACTION = 25
_RECORDED_WORKERS = 8

Row = dict[str, Any]
Rows = defaultdict[Any, list[Any]]

# In the order in which they refer to each other.
_TABLES = (WORKLOADS, SEARCHES, TRIALS, PHASES, POLICIES, EVIDENCE, ALIASES)


_CLUSTERS = ((8, "asp"), (16, "asp"), (32, "ssp"), (64, "ssp"))


def identities() -> list[ScheduledJob]:
    """The workloads: each name on four sizes of cluster."""
    return [
        ScheduledJob(
            Job(
                name=f"job-{number}",
                total_worker_steps=WORKER_STEPS,
                workers=workers,
                recipe=Recipe(
                    model=f"model {number}",
                    data_set="generated",
                    loss="crossentropy",
                    optimizer='{"name":"sgd"}',
                    batch_size=128,
                    learning_rate=0.1,
                    momentum=0.9,
                    learning_rate_boundaries=((WORKER_STEPS // 2, 0.1),),
                    evaluation_interval_worker_steps=WORKER_STEPS // 100,
                ),
                described_metric=DescribedMetric("accuracy"),
            ),
            Protocols("bsp", second),
        )
        for (workers, second), number in itertools.product(_CLUSTERS, range(NAMES))
    ]


def reference_of(identity: ScheduledJob) -> str:
    """The reference by which users name a workload."""
    return f"jobs/{identity.name}.py:workload"


def study_of(search: int) -> str:
    """Name of the study of a search that is none of the imported ones."""
    return f"study-{search}"


def is_imported(search: int) -> bool:
    """Whether these trials were imported instead of searched."""
    return search % IMPORTED_ONE_IN == IMPORTED_ONE_IN - 1


def fill(database: Database, trials: int, evaluations_per_trial: int) -> int:
    """Adds workloads, searches, imported trials and policies; returns how many searches."""
    known = identities()
    searches = trials // TRIALS_PER_SEARCH
    values = random.Random(0)
    rows: Rows = defaultdict(list)
    rows[WORKLOADS] = [_workload(identity) for identity in known]
    for search in range(searches):
        _add_search(rows, search, known[search % len(known)], evaluations_per_trial, values)
        if search % _SEARCHES_PER_TRANSACTION == 0:
            _write(database, rows)
    rows[ALIASES] = list(_aliases(known, searches))
    _write(database, rows)
    _count_on(database)
    return searches


def _write(database: Database, rows: Rows) -> None:
    with database.transaction() as connection:
        for table in _TABLES:
            if rows[table]:
                connection.execute(insert(table), rows[table])
        add_evaluations(connection, rows[Evaluation])
    rows.clear()


def _count_on(database: Database) -> None:
    """PostgreSQL gives the next trial the number after these."""
    if database.engine.dialect.name == "postgresql":
        with database.transaction() as connection:
            connection.execute(
                text(
                    "SELECT setval(pg_get_serial_sequence('syncswitch_trials', 'trial_id'),"
                    " MAX(trial_id)) FROM syncswitch_trials"
                )
            )
            connection.execute(text("ANALYZE"))  # which its autovacuum does, sooner or later


def _workload(identity: ScheduledJob) -> Row:
    return {
        **flat(identity.job),
        "metric_name": identity.metric.name,
        "fingerprint": identity.fingerprint,
        "reference": reference_of(identity),
        "registered_at": _START,
    }


def _add_search(
    rows: Rows, search: int, identity: ScheduledJob, evaluations: int, values: random.Random
) -> None:
    if not is_imported(search):
        rows[SEARCHES].append(_search(search, identity))
    trials = [
        _trial(search, number, identity, values.gauss(0, 0.003))
        for number in range(TRIALS_PER_SEARCH)
    ]
    rows[TRIALS] += trials
    for trial in trials:
        rows[PHASES] += _phases(trial, identity)
        rows[Evaluation].append((trial["trial_id"], _evaluations(trial, evaluations)))
    if not is_imported(search):
        policy = _policy(search, identity)
        rows[POLICIES].append(policy)
        rows[EVIDENCE] += [_evidence(policy, trial) for trial in trials]


def _search(search: int, identity: ScheduledJob) -> Row:
    return {
        "study": study_of(search),
        "fingerprint": identity.fingerprint,
        **flat(identity.protocols),
        "strategy": "paper",
        "halvings": len(SETTINGS),
        "runs": RUNS,
        "threshold": 0.01,
        "target_accuracy": None,
        "trainer": "local",
        "base_seed": search,
        "registered_at": _START + timedelta(hours=search),
        "options": {},
        "pairs": [],
        "dropped": {},
    }


def _trial(search: int, number: int, identity: ScheduledJob, noise: float) -> Row:
    percent = SETTINGS[number // RUNS]
    imported = is_imported(search)
    accuracy = 0.92 + noise
    started_at = _START + timedelta(hours=search, minutes=3 * number)
    return {
        "trial_id": search * TRIALS_PER_SEARCH + number + 1,
        "fingerprint": identity.fingerprint,
        **flat(identity.protocols),
        "study": None if imported else study_of(search),
        "trial_number": None if imported else number,
        "source": f"logs/{search}/run_{number}" if imported else None,
        "candidate_percent": percent,
        "switch_percent": percent,
        "replicate": number % RUNS,
        "seed": None if imported else number % RUNS,
        "state": "complete",
        "worker_steps": WORKER_STEPS,
        "started_at": started_at,
        "ended_at": started_at + timedelta(minutes=2),
        "heartbeat_at": None if imported else started_at,
        "host": None if imported else "chief",
        "process_id": None if imported else 4711,
        "process_started_at": None if imported else 1.7e9,
        "converged_accuracy": accuracy,
        "final_accuracy": accuracy,
        "converged": True,
        "diverged": False,
        "stopped_early": False,
        "training_seconds": 1600 - 9 * (100 - percent),
        "inherited_seconds": 0.0,
        "switch_overhead_seconds": 0.1,
        "target_accuracy": 0.92,
        "time_to_accuracy_seconds": None if accuracy < 0.92 else 1500 - 9 * (100 - percent),
        "software": {"python": "3.12.1", "syncswitch": "0.1.0", "tensorflow": "2.21.0"},
    }


def _phases(trial: Row, identity: ScheduledJob) -> Iterator[Row]:
    switch_at = round(WORKER_STEPS * trial["switch_percent"] / 100)
    parts = ((identity.first_protocol, 0, switch_at), (identity.second_protocol, switch_at, None))
    for position, (protocol, start, end) in enumerate(parts):
        if start < WORKER_STEPS:
            steps = (end or WORKER_STEPS) - start
            yield {
                "trial_id": trial["trial_id"],
                "position": position,
                "protocol": protocol,
                "start_worker_step": start,
                "end_worker_step": start + steps,
                "seconds": steps / (40.0 if position == 0 else 100.0),
                "mean_staleness": float(position),
                "max_staleness": 3 * position,
            }


def _evaluations(trial: Row, count: int) -> Iterator[Evaluation]:
    seconds, accuracy = trial["training_seconds"], trial["final_accuracy"]
    for number in range(1, count + 1):
        missing = math.exp(-6 * number / count)
        yield Evaluation(
            WORKER_STEPS * number // count,
            seconds * number / count,
            accuracy * (1 - missing),
            2.3 * missing,
        )


def _policy(search: int, identity: ScheduledJob) -> Row:
    return {
        "fingerprint": identity.fingerprint,
        "version": 1 + search // (4 * NAMES),
        "workload": identity.name,
        "workers": identity.workers,
        "total_worker_steps": WORKER_STEPS,
        **flat(identity.protocols),
        "switch_percent": SETTINGS[-1],
        "target_accuracy": 0.92,
        "threshold": 0.01,
        "threshold_runs": 0,
        "mean_accuracy": 0.92,
        "training_seconds": 812.5,
        "baseline_seconds": 1600.0,
        "strategy": "paper",
        "study": study_of(search),
        "created_at": _START + timedelta(hours=search + 1),
        "imported_at": None,
        "software": {"python": "3.12.1", "syncswitch": "0.1.0"},
        "guarded": False,
        "metric": "accuracy",
        "metric_goal": "max",
    }


def _evidence(policy: Row, trial: Row) -> Row:
    return {
        "fingerprint": policy["fingerprint"],
        "version": policy["version"],
        "position": trial["trial_number"],
        "study": policy["study"],
        "trial_number": trial["trial_number"],
        "switch_percent": trial["switch_percent"],
        "replicate": trial["replicate"],
        "converged_accuracy": trial["converged_accuracy"],
        "diverged": False,
        "training_seconds": trial["training_seconds"],
    }


def _aliases(known: list[ScheduledJob], searches: int) -> Iterator[Row]:
    """`current` is each workload's last version, `pinned` its first."""
    for number, identity in enumerate(known):
        if not is_imported(number) and number < searches:
            last = 1 + (searches - 1 - number) // len(known)
            for alias, version in (("current", last), ("pinned", 1)):
                yield {"fingerprint": identity.fingerprint, "alias": alias, "version": version}


def write_runs(path: Path, runs: int, evaluations: int) -> None:
    """Writes runs that were made elsewhere as a table for `import`."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            [
                "workload",
                "run",
                "first_protocol",
                "second_protocol",
                "switch_percent",
                "replicate",
                "workers",
                "total_worker_steps",
                "worker_step",
                "elapsed_seconds",
                "accuracy",
                "training_loss",
            ]
        )
        for number in range(runs):
            run = (f"recorded-{number // 200}", f"run-{number}", "bsp", "asp")
            run += (SETTINGS[number % len(SETTINGS)], number % 200 // len(SETTINGS))
            for test in range(1, evaluations + 1):
                done = math.exp(-6 * test / evaluations)
                step = WORKER_STEPS * test // evaluations
                measured = (step, 1.234567 * test, 0.92 * (1 - done), 0.1 + 2.2 * done)
                table.writerow((*run, _RECORDED_WORKERS, WORKER_STEPS, *measured))
