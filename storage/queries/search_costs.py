"""The cost of each search, from its trials alone, running or long done."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import ColumnElement, Row, Select, select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.metrics import seconds_at_pace
from syncswitch.storage.queries.columns import JobColumns
from syncswitch.storage.records.trial import BASELINE_PERCENT, PhaseRecord, TrialState
from syncswitch.storage.tables.base import columns_of
from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import PHASES, SEARCHES, TRIALS, WORKLOADS
from syncswitch.storage.trials.values import CANCELLED, StoredTrial
from syncswitch.storage.trials.workloads import is_workload

_FACTS = TRIAL_FACTS.c

CostedTrial = StoredTrial | Row[Any]
"""A trial, or what `_trials` selects of it."""


@dataclass(frozen=True)
class SearchCost:
    """The cost of a search so far."""

    completed_runs: Annotated[int, "complete, diverged ones included"]
    failed_runs: Annotated[int, "failed or given back, and made again"]
    cancelled_runs: Annotated[int, "stopped because they were no longer needed"]
    running_runs: Annotated[int, "under way, as stored"]
    speculative_runs: Annotated[int, "of all these, begun before they were known to be needed"]
    paid_seconds: Annotated[
        float,
        "training time of the completed and the cancelled runs, less what forks inherited",
    ]
    baseline_seconds: Annotated[
        float | None,
        "mean training time of its runs with the first protocol alone that did not diverge, of"
        " stopped ones what they would have taken; null where nothing tells",
    ]
    baseline_is_estimated: Annotated[
        bool, "no such run was made: W at the throughput of the first protocol in other runs"
    ]
    bsp_multiples: Annotated[
        float | None, "search cost: paid seconds over baseline seconds; null without these"
    ]
    wall_seconds: Annotated[
        float, "time during which at least one run was under way, as far as was reported"
    ]


@dataclass(frozen=True)
class RegisteredSearch(JobColumns):
    """One search, and what became of it."""

    study: Annotated[str, "name of the search"]
    strategy: Annotated[str, "strategy that decides"]
    trainer: Annotated[str, "what trains"]
    registered_at: Annotated[datetime, "when it began; UTC"]
    policy_version: Annotated[int | None, "that it published; null while it has not"]


@dataclass(frozen=True)
class StudyCost(SearchCost, RegisteredSearch):
    """The columns of `search_costs`."""


def study_costs(
    database: Database,
    *,
    workload: str | None = None,
    fingerprint: str | None = None,
    study: str | None = None,
) -> list[StudyCost]:
    """The cost of each search, in the order of their registration; chosen as by `frames`."""
    wanted = select(SEARCHES.c.study).join(WORKLOADS)
    if workload is not None:
        wanted = wanted.where(is_workload(workload))
    if fingerprint is not None:
        wanted = wanted.where(SEARCHES.c.fingerprint == fingerprint)
    if study is not None:
        wanted = wanted.where(SEARCHES.c.study == study)
    with database.transaction(read_only=True) as connection:
        searches = connection.execute(_searches(wanted)).mappings().all()
        trials: defaultdict[str, list[Row[Any]]] = defaultdict(list)
        for trial in connection.execute(_trials(wanted)):
            trials[trial.study].append(trial)
        unknown = [study for study, of_study in trials.items() if not _baselines(of_study)]
        phases: defaultdict[str, list[PhaseRecord]] = defaultdict(list)
        for name, *values in connection.execute(_phases(unknown)) if unknown else ():
            phases[name].append(PhaseRecord(*values))
    found = []
    for search in searches:
        columns = dict(search)
        total_worker_steps = columns.pop("total_worker_steps")
        name = columns["study"]
        pace = seconds_at_pace(phases[name], columns["first_protocol"], total_worker_steps)
        found.append(StudyCost(**columns, **asdict(search_cost(trials[name], pace))))
    return found


def search_cost(trials: Sequence[CostedTrial], estimated_seconds: float | None) -> SearchCost:
    """Adds up what the trials of one search cost.

    Args:
        trials: All of them, whatever became of them.
        estimated_seconds: Of a training with the first protocol alone, should no trial have
            measured it; None where nothing tells.
    """
    states = Counter(trial.state for trial in trials)
    cancelled = sum(trial.failure == CANCELLED for trial in trials)
    # None of a run under way, and of one whose infrastructure failed.
    paid = math.fsum(trial.paid_seconds or 0.0 for trial in trials)
    measured = _baselines(trials)
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


def _baselines(trials: Iterable[CostedTrial]) -> list[float]:
    """Training time of each whole run with the first protocol alone."""
    seconds = (
        trial.whole_run_seconds for trial in trials if trial.candidate_percent == BASELINE_PERCENT
    )
    return [value for value in seconds if value is not None]


def wall_seconds(trials: Iterable[CostedTrial]) -> float:
    """Time during which at least one of these runs was under way, as far as was reported.

    A failure may be written hours after the process died, so the last report ends a failed run, as
    one that goes on.
    """
    spans = []
    for trial in trials:
        has_times = trial.failure is None or trial.failure == CANCELLED
        end = (trial.ended_at if has_times else None) or trial.heartbeat_at or trial.ended_at
        if trial.started_at is not None and end is not None:
            spans.append((trial.started_at, end))
    return covered_seconds(spans)


def covered_seconds(spans: Iterable[tuple[datetime, datetime]]) -> float:
    """How long at least one of the spans of time lasted; where they overlap counts once."""
    covered = 0.0
    reached: datetime | None = None
    for start, end in sorted(spans):
        begin = start if reached is None else max(start, reached)
        if end > begin:
            covered += (end - begin).total_seconds()
            reached = end
    return covered


def _searches(wanted: Select[Any]) -> Select[Any]:
    # A policy that came from another database may name a study that is called the same.
    is_its_policy = (POLICIES.c.study == SEARCHES.c.study) & POLICIES.c.imported_at.is_(None)
    columns: tuple[ColumnElement[Any], ...] = (
        WORKLOADS.c.name.label("workload"),
        SEARCHES.c.fingerprint,
        WORKLOADS.c.workers,
        WORKLOADS.c.simulated_cluster,
        WORKLOADS.c.first_protocol,
        WORKLOADS.c.second_protocol,
        WORKLOADS.c.total_worker_steps,
        SEARCHES.c.study,
        SEARCHES.c.strategy,
        SEARCHES.c.trainer,
        SEARCHES.c.registered_at,
        POLICIES.c.version.label("policy_version"),
    )
    return (
        select(*columns)
        .join_from(SEARCHES, WORKLOADS)
        .outerjoin(POLICIES, is_its_policy)
        .where(SEARCHES.c.study.in_(wanted))
        .order_by(SEARCHES.c.registered_at, SEARCHES.c.study)
    )


def _trials(wanted: Select[Any]) -> Select[Any]:
    """The columns that `search_cost` reads: all columns of 100,000 trials would take seconds."""
    columns = (
        _FACTS.study,
        _FACTS.state,
        _FACTS.failure,
        _FACTS.speculative,
        _FACTS.candidate_percent,
        _FACTS.paid_seconds,
        _FACTS.whole_run_seconds,
        _FACTS.started_at,
        _FACTS.ended_at,
        TRIALS.c.heartbeat_at,
    )
    return (
        select(*columns)
        .join(TRIALS, TRIALS.c.trial_id == _FACTS.trial_id)
        .where(_FACTS.study.in_(wanted))
    )


def _phases(studies: Sequence[str]) -> Select[Any]:
    return (
        select(TRIALS.c.study, *columns_of(PhaseRecord, PHASES))
        .join(PHASES, PHASES.c.trial_id == TRIALS.c.trial_id)
        .where(TRIALS.c.study.in_(studies))
    )
