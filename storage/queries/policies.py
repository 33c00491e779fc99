"""The table of policies: one row for each version."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any

from syncswitch.storage.columns import MeasuredJobColumns
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyEntry, PolicyRegistry


@dataclass(frozen=True)
class PolicyVersion(MeasuredJobColumns):
    """The columns of `policy_versions`; the name of the workload is that at the publication."""

    version: Annotated[int, "1, 2, ... per fingerprint"]
    aliases: Annotated[str, "aliases that point at it, joined by commas; empty without one"]
    total_worker_steps: Annotated[int, "W, length of the job"]
    switch_percent: Annotated[float, "percent of W in the first protocol"]
    target_accuracy: Annotated[float, "accuracy of the first protocol alone, or as given"]
    target_value: Annotated[float, "the same as a value of the metric, in its unit"]
    threshold: Annotated[float, "beta, the accuracy that may be lost; in the metric's unit"]
    mean_accuracy: Annotated[
        float | None, "mean accuracy at the switch point; null if no run was made there"
    ]
    mean_value: Annotated[float | None, "the same as a value of the metric, in its unit"]
    training_seconds: Annotated[
        float | None, "mean training time of a whole run there; null if no run was made"
    ]
    baseline_seconds: Annotated[float | None, "the same with the first protocol alone"]
    speed_up: Annotated[float | None, "baseline seconds over training seconds"]
    speed_up_low: Annotated[
        float | None, "lower end of its 90 % interval; null if too few runs were timed"
    ]
    speed_up_high: Annotated[float | None, "upper end of the interval"]
    evidence_runs: Annotated[int, "number of trials that it rests on"]
    strategy: Annotated[str, "strategy that decided"]
    guarded: Annotated[bool, "whether it was found for guarded trainings, or for the bare switch"]
    keep: Annotated[
        float | None, "share of trainings with the bare switch that has to keep the accuracy"
    ]
    kept_share: Annotated[
        float | None,
        "expected share of trainings with the bare switch that lose at most beta",
    ]
    delivered_share: Annotated[
        float | None, "the same share among the models that guarded trainings deliver"
    ]
    baseline_kept_share: Annotated[float | None, "the same share with the first protocol alone"]
    expected_time: Annotated[
        float | None,
        "expected time of a later training over the baseline's, failed switches included",
    ]
    confidence: Annotated[
        float | None,
        "probability that guarded trainings take less time than the baseline; for the bare switch,"
        " that enough keep the accuracy",
    ]
    reason: Annotated[
        str | None, "reason why it is the first protocol alone; null if there is none"
    ]
    study: Annotated[str, "search that found it"]
    created_at: Annotated[datetime, "time of its publication, UTC"]
    imported_at: Annotated[
        datetime | None, "time of its import, UTC; null if a search of this database found it"
    ]
    software: Annotated[dict[str, str], "version by name of distribution"]


def policy_versions(
    database: Database, *, workload: str | None = None, fingerprint: str | None = None
) -> list[PolicyVersion]:
    """Returns the versions of policies, by workload, cluster and version; see `JobChoice`."""
    entries = PolicyRegistry(database).entries(workload=workload or fingerprint)
    rows = [_row(one) for one in entries if fingerprint in (None, one.policy.fingerprint)]
    return sorted(rows, key=lambda row: (row.workload, row.workers, row.fingerprint, row.version))


def _row(entry: PolicyEntry) -> PolicyVersion:
    policy, metric = entry.policy, entry.policy.decided_by
    mean, imported_at = policy.mean_accuracy, entry.imported_at
    others: dict[str, Any] = {
        "simulated_cluster": entry.identity.simulated_cluster,
        "aliases": ",".join(entry.aliases),
        "target_value": metric.value(policy.target_accuracy),
        "mean_value": None if mean is None else metric.value(mean),
        "evidence_runs": len(policy.evidence),
        "created_at": datetime.fromisoformat(policy.created_at),
        "imported_at": None if imported_at is None else datetime.fromisoformat(imported_at),
    }
    names = {field.name for field in fields(PolicyVersion)} - others.keys()
    return PolicyVersion(**others, **{name: getattr(policy, name) for name in names})
