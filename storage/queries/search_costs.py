"""What each search cost, from its trials alone: also of searches that nobody runs any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import ColumnElement, Select, case, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from syncswitch.storage.database.engine import Database
from syncswitch.storage.queries.summaries import BASELINE_PERCENT
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.tables.policies import PolicyRow
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import SearchRow, TrialRow, WorkloadRow
from syncswitch.storage.trials.selection import is_workload
from syncswitch.storage.trials.values import CANCELLED

_FACTS = TRIAL_FACTS.c


@dataclass(frozen=True, slots=True)
class StudyCost:
    """One search and what it cost so far."""

    study: Annotated[str, "name of the search"]
    workload: Annotated[str, "name of the workload"]
    fingerprint: Annotated[str, "of the workload on its cluster"]
    workers: Annotated[int, "n, size of the cluster"]
    simulated_cluster: Annotated[str | None, "digest of its profile; null for a real one"]
    first_protocol: Annotated[str, "before the switch"]
    second_protocol: Annotated[str, "after the switch"]
    strategy: Annotated[str, "strategy that decides"]
    trainer: Annotated[str, "what trains"]
    registered_at: Annotated[datetime, "when it began; UTC"]
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
        " stopped ones what they would have taken; null without one (`run` then estimates it)",
    ]
    bsp_multiples: Annotated[
        float | None, "search cost: paid seconds over baseline seconds; null without these"
    ]
    wall_seconds: Annotated[
        float, "time during which at least one run was under way, as far as was reported"
    ]
    policy_version: Annotated[int | None, "that it published; null while it has not"]


def study_costs(
    database: Database,
    *,
    workload: str | None = None,
    fingerprint: str | None = None,
    study: str | None = None,
) -> list[StudyCost]:
    """The cost of each search, in the order in which they were registered.

    Args:
        database: Holds the searches.
        workload: Name, normal reference, or start of the fingerprint (8 digits or more).
        fingerprint: The whole of it.
        study: Name of the search.
    """
    wanted = select(SearchRow.study).join(SearchRow.workload)
    if workload is not None:
        wanted = wanted.where(is_workload(workload))
    if fingerprint is not None:
        wanted = wanted.where(SearchRow.fingerprint == fingerprint)
    if study is not None:
        wanted = wanted.where(SearchRow.study == study)
    with database.session(read_only=True) as session:
        rows = session.execute(_searches(wanted)).mappings().all()
        wall_seconds = _wall_seconds(session, wanted)
    return [
        StudyCost(
            **row,
            bsp_multiples=row["paid_seconds"] / row["baseline_seconds"]
            if row["baseline_seconds"]
            else None,
            wall_seconds=wall_seconds.get(row["study"], 0.0),
        )
        for row in rows
    ]


def span_of(
    started_at: datetime | None,
    ended_at: datetime | None,
    heartbeat_at: datetime | None,
    failure: str | None,
) -> tuple[datetime, datetime] | None:
    """From when to when a run is known to have been under way; None where nobody knows.

    A failure may be written hours after the process died, so the last report ends a failed run, as
    one that goes on. The arguments are columns of a trial.
    """
    has_times = failure is None or failure == CANCELLED
    end = (ended_at if has_times else None) or heartbeat_at or ended_at
    return None if started_at is None or end is None else (started_at, end)


def covered_seconds(spans: Iterable[tuple[datetime, datetime]]) -> float:
    """How long at least one of the spans of time lasted; where they overlap counts once.

    Args:
        spans: Start and end of each, in any order.
    """
    covered = 0.0
    reached: datetime | None = None
    for start, end in sorted(spans):
        begin = start if reached is None else max(start, reached)
        if end > begin:
            covered += (end - begin).total_seconds()
            reached = end
    return covered


def _searches(wanted: Select[Any]) -> Select[Any]:
    is_complete = _FACTS.state == TrialState.COMPLETE
    is_cancelled = _FACTS.failure == CANCELLED
    has_failed = (_FACTS.state == TrialState.FAILED) & ~is_cancelled
    is_baseline = is_complete & (_FACTS.candidate_percent == BASELINE_PERCENT)
    sums = (
        select(
            _FACTS.study,
            func.count(case((is_complete, 1))).label("completed_runs"),
            func.count(case((has_failed, 1))).label("failed_runs"),
            func.count(case((is_cancelled, 1))).label("cancelled_runs"),
            func.count(case((_FACTS.state == TrialState.RUNNING, 1))).label("running_runs"),
            func.count(case((_FACTS.speculative, 1))).label("speculative_runs"),
            # Null of a run under way, and of one whose infrastructure failed.
            func.sum(_FACTS.paid_seconds).label("paid_seconds"),
            func.avg(case((is_baseline, _FACTS.whole_run_seconds))).label("baseline_seconds"),
        )
        .where(_FACTS.study.in_(wanted))
        .group_by(_FACTS.study)
        .subquery()
    )
    columns: list[ColumnElement[Any] | InstrumentedAttribute[Any]] = [
        SearchRow.study,
        WorkloadRow.name.label("workload"),
        SearchRow.fingerprint,
        WorkloadRow.workers,
        WorkloadRow.simulated_cluster,
        WorkloadRow.first_protocol,
        WorkloadRow.second_protocol,
        SearchRow.strategy,
        SearchRow.trainer,
        SearchRow.registered_at,
        *(
            func.coalesce(sums.c[name], 0).label(name)
            for name in (
                "completed_runs",
                "failed_runs",
                "cancelled_runs",
                "running_runs",
                "speculative_runs",
                "paid_seconds",
            )
        ),
        sums.c.baseline_seconds,
        PolicyRow.version.label("policy_version"),
    ]
    # A policy that came from another database may name a study that is called the same.
    is_its_policy = (PolicyRow.study == SearchRow.study) & PolicyRow.imported_at.is_(None)
    return (
        select(*columns)
        .join(SearchRow.workload)
        .outerjoin(sums, sums.c.study == SearchRow.study)
        .outerjoin(PolicyRow, is_its_policy)
        .where(SearchRow.study.in_(wanted))
        .order_by(SearchRow.registered_at, SearchRow.study)
    )


def _wall_seconds(session: Session, wanted: Select[Any]) -> dict[str, float]:
    query = select(
        TrialRow.study,
        TrialRow.started_at,
        TrialRow.ended_at,
        TrialRow.heartbeat_at,
        TrialRow.failure,
    ).where(TrialRow.study.in_(wanted))
    spans: defaultdict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for study, start, end, heartbeat, failure in session.execute(query):
        span = span_of(start, end, heartbeat, failure)
        if study is not None and span is not None:
            spans[study].append(span)
    return {study: covered_seconds(of_study) for study, of_study in spans.items()}
