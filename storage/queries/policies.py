"""The versions of all policies, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any

from sqlalchemy import RowMapping, func, select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.queries.columns import MeasuredJobColumns, columns_of_record
from syncswitch.storage.tables.base import own_value
from syncswitch.storage.tables.policies import ALIASES, EVIDENCE, POLICIES
from syncswitch.storage.tables.trials import WORKLOADS
from syncswitch.storage.trials.workloads import is_workload


class PolicyVersion(MeasuredJobColumns):
    """The columns of `policy_versions`; the workload's name is that of its publication."""

    version: Annotated[int, "1, 2, ... per fingerprint"]
    aliases: Annotated[str, "names that point at it, with commas between; empty without one"]
    total_worker_steps: Annotated[int, "W, length of the job"]
    switch_percent: Annotated[float, "percent of W in the first protocol"]
    target_accuracy: Annotated[float, "of the first protocol alone, or as given"]
    target_value: Annotated[float, "the metric's own value of it, in its unit"]
    threshold: Annotated[float, "beta, the accuracy that may be lost; in the metric's unit"]
    mean_accuracy: Annotated[float | None, "measured at the switch point; null where no run was"]
    mean_value: Annotated[float | None, "the metric's own value of it, in its unit"]
    training_seconds: Annotated[
        float | None, "mean training time of a whole run there; null where no run was"
    ]
    baseline_seconds: Annotated[float | None, "the same with the first protocol alone"]
    speed_up: Annotated[float | None, "baseline seconds over training seconds"]
    speed_up_low: Annotated[
        float | None, "lower end of its 90 % interval; null where too few runs were timed"
    ]
    speed_up_high: Annotated[float | None, "upper end of it"]
    evidence_runs: Annotated[int, "trials that it rests on"]
    strategy: Annotated[str, "strategy that decided"]
    guarded: Annotated[bool, "found for guarded trainings, else for the bare switch"]
    keep: Annotated[float | None, "so large a share is enough with the bare switch"]
    kept_share: Annotated[
        float | None,
        "expected share of trainings with the bare switch that lose at most beta; null: not known",
    ]
    delivered_share: Annotated[float | None, "the same of the models that guarded ones deliver"]
    baseline_kept_share: Annotated[float | None, "the same of the first protocol alone"]
    expected_time: Annotated[
        float | None, "of a later training by that of the baseline, failed switches included"
    ]
    confidence: Annotated[
        float | None,
        "probability that guarded trainings take less time than the baseline; for the bare switch,"
        " that enough keep the accuracy",
    ]
    reason: Annotated[str | None, "why it is the first protocol alone; null where nobody said"]
    study: Annotated[str, "search that found it"]
    created_at: Annotated[datetime, "UTC"]
    imported_at: Annotated[datetime | None, "UTC; null if a search of this database found it"]
    software: Annotated[dict[str, str], "version by name of distribution"]


def policy_versions(
    database: Database, *, workload: str | None = None, fingerprint: str | None = None
) -> list[dict[str, Any]]:
    """Every version of every policy, by workload, cluster and version; chosen as in `frames`."""
    columns = (column.name for column in columns_of_record(PolicyVersion))
    names = [name for name in columns if name in POLICIES.c]
    evidence_runs = (
        select(func.count())
        .where(
            EVIDENCE.c.fingerprint == POLICIES.c.fingerprint,
            EVIDENCE.c.version == POLICIES.c.version,
        )
        .scalar_subquery()
    )
    query = (
        select(
            *(POLICIES.c[name] for name in names),
            WORKLOADS.c.simulated_cluster,
            own_value(POLICIES.c.target_accuracy, POLICIES.c.metric_goal).label("target_value"),
            own_value(POLICIES.c.mean_accuracy, POLICIES.c.metric_goal).label("mean_value"),
            evidence_runs.label("evidence_runs"),
            ALIASES.c.alias,
        )
        .join(WORKLOADS, WORKLOADS.c.fingerprint == POLICIES.c.fingerprint)
        .outerjoin(
            ALIASES,
            (ALIASES.c.fingerprint == POLICIES.c.fingerprint)
            & (ALIASES.c.version == POLICIES.c.version),
        )
        .order_by(POLICIES.c.fingerprint, POLICIES.c.version)
    )
    if workload is not None:
        query = query.where(is_workload(workload))
    if fingerprint is not None:
        query = query.where(POLICIES.c.fingerprint == fingerprint)
    with database.transaction(read_only=True) as connection:
        rows = connection.execute(query).mappings().all()
    return sorted(_versions(rows), key=lambda row: (row["workload"], row["workers"]))


def _versions(rows: Sequence[RowMapping]) -> Iterator[dict[str, Any]]:
    """One row per version, of rows that repeat for each of its aliases."""
    for _, group in groupby(rows, key=lambda row: (row["fingerprint"], row["version"])):
        same = list(group)
        version = dict(same[0])
        seconds, baseline = version["training_seconds"], version["baseline_seconds"]
        version["aliases"] = ",".join(sorted(row["alias"] for row in same if row["alias"]))
        version["speed_up"] = baseline / seconds if baseline and seconds else None
        yield version
