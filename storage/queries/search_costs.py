"""The cost of each search, computed from its trials."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import Select, select
from typing_extensions import Unpack

from syncswitch.storage.columns import JobColumns
from syncswitch.storage.database.engine import Database
from syncswitch.storage.metrics import seconds_at_pace
from syncswitch.storage.records.flat import flat, nested
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialState
from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.tables.trials import SEARCHES, WORKLOADS
from syncswitch.storage.trials.choice import SearchChoice, conditions
from syncswitch.storage.trials.store import read_trials
from syncswitch.storage.trials.values import CANCELLED, StoredTrial
from syncswitch.storage.trials.workloads import is_workload


@dataclass(frozen=True)
class SearchCost:
    """The cost of a search so far."""

    completed_runs: Annotated[int, "complete runs, diverged ones included"]
    failed_runs: Annotated[int, "runs that failed or were given back, and are made again"]
    cancelled_runs: Annotated[int, "runs that were stopped because they were no longer needed"]
    running_runs: Annotated[int, "runs under way, as stored"]
    speculative_runs: Annotated[
        int, "how many of all these began before they were known to be needed"
    ]
    paid_seconds: Annotated[
        float, "training time of completed and cancelled runs, without what forks inherited"
    ]
    baseline_seconds: Annotated[
        float | None,
        "mean training time of whole runs with the first protocol alone that did not diverge; null"
        " if unknown",
    ]
    baseline_is_estimated: Annotated[
        bool,
        "whether it is an estimate for want of such runs: W at the protocol's pace in other runs",
    ]
    bsp_multiples: Annotated[
        float | None, "search cost: paid seconds over baseline seconds; null without the latter"
    ]
    wall_seconds: Annotated[
        float, "time during which at least one run was under way, as far as it was reported"
    ]


@dataclass(frozen=True)
class StudyCost:
    """The columns of `search_costs`: one search, its policy and its cost."""

    job: JobColumns
    study: Annotated[str, "name of the search"]
    strategy: Annotated[str, "name of the strategy"]
    trainer: Annotated[str, "name of the trainer"]
    registered_at: Annotated[datetime, "beginning of the search, UTC"]
    policy_version: Annotated[int | None, "version of the policy that it published; null before"]
    cost: SearchCost


def study_costs(database: Database, **choice: Unpack[SearchChoice]) -> list[StudyCost]:
    """Returns the cost of each search, in the order of registration; see `SearchChoice`."""
    chosen = conditions({**choice, "kinds": ("search",)})
    trials: defaultdict[str | None, list[StoredTrial]] = defaultdict(list)
    with database.transaction(read_only=True) as connection:
        searches = connection.execute(_searches(**choice)).mappings().all()
        for trial in read_trials(connection, *chosen):
            trials[trial.origin.study].append(trial)
    found = []
    for search in searches:
        mine = trials[search["study"]]
        phases = (phase for trial in mine for phase in trial.phases)
        pace = seconds_at_pace(phases, search["first_protocol"], search["total_worker_steps"])
        found.append(nested(StudyCost, {**search, **flat(search_cost(mine, pace))}))
    return found


def search_cost(trials: Sequence[StoredTrial], estimated_seconds: float | None) -> SearchCost:
    """Adds up what all trials of one search cost.

    `estimated_seconds` is the time of a training with the first protocol alone, in case no trial
    has measured it; None if unknown.
    """
    states = Counter(trial.state for trial in trials)
    cancelled = sum(trial.failure == CANCELLED for trial in trials)
    # It is None for a run under way, and for one whose infrastructure failed.
    paid = math.fsum(trial.times.paid_seconds or 0.0 for trial in trials)
    whole = (
        one.times.whole_run_seconds for one in trials if one.candidate_percent == BASELINE_PERCENT
    )
    measured = [seconds for seconds in whole if seconds is not None]
    baseline = statistics.fmean(measured) if measured else estimated_seconds
    return SearchCost(
        completed_runs=states[TrialState.COMPLETE],
        failed_runs=states[TrialState.FAILED] - cancelled,
        cancelled_runs=cancelled,
        running_runs=states[TrialState.RUNNING],
        speculative_runs=sum(trial.speculative for trial in trials),
        paid_seconds=paid,
        baseline_seconds=baseline,
        baseline_is_estimated=not measured,
        bsp_multiples=paid / baseline if baseline else None,
        wall_seconds=wall_seconds(trials),
    )


def wall_seconds(trials: Iterable[StoredTrial]) -> float:
    """Returns the time during which at least one run was under way, as far as it was reported.

    A failure may be recorded hours after the process died, so a failed run counts until its last
    report, like a running one.
    """
    spans = []
    for trial in trials:
        has_times = trial.failure is None or trial.failure == CANCELLED
        end = (trial.ended_at if has_times else None) or trial.heartbeat_at or trial.ended_at
        if trial.started_at is not None and end is not None:
            spans.append((trial.started_at, end))
    return covered_seconds(spans)


def covered_seconds(spans: Iterable[tuple[datetime, datetime]]) -> float:
    """Returns the total length of spans of time; where they overlap counts once."""
    covered = 0.0
    reached: datetime | None = None
    for start, end in sorted(spans):
        begin = start if reached is None else max(start, reached)
        if end > begin:
            covered += (end - begin).total_seconds()
            reached = end
    return covered


def _searches(
    workload: str | None = None, fingerprint: str | None = None, study: str | None = None
) -> Select[Any]:
    # A policy from another database may come from a study of the same name.
    is_its_policy = (POLICIES.c.study == SEARCHES.c.study) & POLICIES.c.imported_at.is_(None)
    of_job = ("workers", "simulated_cluster", "total_worker_steps")
    protocols = ("first_protocol", "second_protocol", "momentum_after_switch")
    of_search = (*protocols, "fingerprint", "study", "strategy", "trainer", "registered_at")
    query = (
        select(
            WORKLOADS.c.name.label("workload"),
            *(WORKLOADS.c[name] for name in of_job),
            *(SEARCHES.c[name] for name in of_search),
            POLICIES.c.version.label("policy_version"),
        )
        .join_from(SEARCHES, WORKLOADS)
        .outerjoin(POLICIES, is_its_policy)
        .order_by(SEARCHES.c.registered_at, SEARCHES.c.study)
    )
    if workload is not None:
        query = query.where(is_workload(workload))
    if fingerprint is not None:
        query = query.where(SEARCHES.c.fingerprint == fingerprint)
    return query if study is None else query.where(SEARCHES.c.study == study)
