"""The table of policies: one row for each version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar

from typing_extensions import Unpack

from syncswitch.storage.columns import ConditionColumns, JobColumns, MetricColumns
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyEntry, PolicyRegistry
from syncswitch.storage.records.flat import flat, nested
from syncswitch.storage.records.goal import Goal
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.policy import Measured, Promise, TimingPolicy
from syncswitch.storage.trials.choice import JobChoice
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.summary import goal_of, is_use_kept, judged_by


@dataclass(frozen=True)
class PolicyVersion:
    """The columns of `policy_versions`; the name of the workload is that at the publication."""

    job: JobColumns
    metric: MetricColumns
    version: Annotated[int, "1, 2, ... per fingerprint"]
    aliases: Annotated[str, "aliases that point at it, joined by commas; empty without one"]
    total_worker_steps: Annotated[int, "W, length of the job"]
    switch_percent: Annotated[float, "percent of W in the first protocol"]
    target_accuracy: Annotated[
        float | None, "accuracy of the first protocol alone, or as given; null until measured"
    ]
    target_value: Annotated[float | None, "the same as a value of the metric, in its unit"]
    threshold: Annotated[float, "beta, the accuracy that may be lost; in the metric's unit"]
    mean_value: Annotated[float | None, "mean_accuracy as a value of the metric, in its unit"]
    measured: Measured
    speed_up: Annotated[float | None, "baseline seconds over training seconds"]
    evidence_runs: Annotated[int, "number of trials that it rests on"]
    strategy: Annotated[str, "strategy that decided"]
    guarded: Annotated[bool, "whether it was found for guarded runs, or without a guard"]
    min_kept_share: Annotated[
        float | None, "share of runs without a guard that has to keep the accuracy"
    ]
    promise: Promise
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
    rows = [_row(one) for one in entries if fingerprint in (None, one.policy.job.fingerprint)]
    return sorted(
        rows, key=lambda row: (row.job.workload, row.job.workers, row.job.fingerprint, row.version)
    )


def _row(entry: PolicyEntry) -> PolicyVersion:
    policy, metric = entry.policy, entry.policy.job.metric
    target, mean = policy.target_accuracy, policy.measured.mean_accuracy
    imported_at = entry.imported_at
    return nested(
        PolicyVersion,
        {
            **flat(policy),
            "simulated_cluster": entry.job.simulated_cluster,
            "aliases": ",".join(entry.aliases),
            "target_value": None if target is None else metric.value(target),
            "mean_value": None if mean is None else metric.value(mean),
            "evidence_runs": len(policy.evidence),
            "created_at": datetime.fromisoformat(policy.created_at),
            "imported_at": None if imported_at is None else datetime.fromisoformat(imported_at),
            "speed_up": policy.measured.speed_up,
        },
    )


@dataclass(frozen=True)
class UseResult:
    """What a use reached, and what it is held to."""

    accuracy: Annotated[float, "converged accuracy, 0 to 1"]
    value: Annotated[float, "the same as a value of the metric, in its unit"]
    target_accuracy: Annotated[
        float | None,
        "mean of all runs of the first protocol alone so far, or as given; null without one",
    ]
    target_value: Annotated[float | None, "the same as a value of the metric, in its unit"]
    threshold: Annotated[float, "beta, the accuracy that may be lost; in the metric's unit"]
    diverged: Annotated[bool, "whether it diverged"]
    kept: Annotated[
        bool | None, "whether it lost at most beta, and did not diverge; null without a target"
    ]


@dataclass(frozen=True)
class UseGuard:
    """What the guard of a use did."""

    COLUMNS: ClassVar[Mapping[str, str]] = {
        "state": "guard",
        "alarm": "guard_alarm",
        "lost_seconds": "guard_lost_seconds",
    }

    state: Annotated[str, "off, quiet, or alarmed (it sent the run back to its switch)"]
    failed_percents: Annotated[str | None, "switches that failed, joined by ', '; null for none"]
    held_percent: Annotated[
        float, "switch with which it came to its end; 100 for the first protocol alone"
    ]
    alarm: Annotated[
        str | None, "each failed switch with the reason of its alarm, joined by '; '; null for none"
    ]
    lost_seconds: Annotated[
        float | None, "training time from failed switches to their alarms; null without any"
    ]


@dataclass(frozen=True)
class PolicyUseFacts:
    """The columns of `uses`; one with injections is not counted."""

    job: JobColumns
    metric: MetricColumns
    use_id: Annotated[str, "identifier, the same in every database"]
    policy_version: Annotated[int, "version of the policy that it trained with"]
    switch_percent: Annotated[float, "percent of W in the first protocol"]
    seed: Annotated[int, "seed of parameters and order of data"]
    result: UseResult
    guard: UseGuard
    training_seconds: Annotated[float, "training time, the cost of alarms included"]
    baseline_seconds: Annotated[
        float | None,
        "training time of the first protocol alone, as the policy states it; null if unknown",
    ]
    speed_up: Annotated[float | None, "baseline seconds over training seconds"]
    under: ConditionColumns
    started_at: Annotated[datetime, "UTC"]
    ended_at: Annotated[datetime, "UTC"]
    host: Annotated[str, "machine of the chief"]


def use_facts(database: Database, **choice: Unpack[JobChoice]) -> list[PolicyUseFacts]:
    """Returns the uses in the order of their recording; see `JobChoice`."""
    uses = TrialStore(database).trials(kinds=("use",), **choice)
    registry = PolicyRegistry(database)
    fingerprints = {use.job.fingerprint for use in uses}
    return facts_of(uses, [one for job in fingerprints for one in registry.policies(workload=job)])


def facts_of(uses: Sequence[StoredTrial], versions: Iterable[TimingPolicy]) -> list[PolicyUseFacts]:
    """Judges all uses of some jobs by the versions of their policies."""
    jobs: dict[tuple[str, str], list[StoredTrial]] = defaultdict(list)
    for use in uses:
        jobs[use.job.fingerprint, use.job.first_protocol].append(use)
    every = list(versions)
    policies = {
        (policy.job.fingerprint, policy.version): (
            policy,
            goal_of(policy, jobs[policy.job.fingerprint, policy.protocols.first_protocol]),
        )
        for policy in (judged_by(one, every) for one in every)
    }
    return [
        _facts(use, *policies[use.job.fingerprint, use.origin.policy_version or 0]) for use in uses
    ]


def _facts(use: StoredTrial, policy: TimingPolicy, goal: Goal | None) -> PolicyUseFacts:
    baseline, seconds = policy.measured.baseline_seconds, use.times.training_seconds
    failed, target = use.failed, None if goal is None else goal.accuracy
    values = {
        **flat(use),
        "accuracy": use.result.converged_accuracy,
        "value": use.result.converged_value,
        "target_accuracy": target,
        "target_value": None if target is None else policy.job.metric.value(target),
        "threshold": policy.threshold,
        "kept": is_use_kept(use, goal),
        "failed_percents": ", ".join(f"{one.switch_percent:g}" for one in failed) or None,
        "guard_alarm": "; ".join(
            f"{one.place(use.job.second_protocol)}: {one.alarm}" for one in failed
        )
        or None,
        "baseline_seconds": baseline,
        "speed_up": baseline / seconds if baseline and seconds else None,
    }
    return nested(PolicyUseFacts, values)


_ASIDE = frozenset({"name", "version", "created_at"})  # the policy has the name of the job, too


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field in which two policies or their jobs differ; None if one has no value.

    The field of a distribution is `software`, a space, and its name.
    """

    field: str
    before: Any
    after: Any


def policy_differences(
    first: TimingPolicy, second: TimingPolicy, first_job: ScheduledJob, second_job: ScheduledJob
) -> list[FieldDifference]:
    """Compares two policies and their jobs, except versions and times of creation."""
    before, after = _fields(first, first_job), _fields(second, second_job)
    return [
        FieldDifference(name, before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _fields(policy: TimingPolicy, job: ScheduledJob) -> Mapping[str, Any]:
    content = {**flat(policy), "speed_up": policy.measured.speed_up, **flat(job)}
    if policy.band is not None:  # its target and threshold are the policy's
        content["band"] = f"{policy.band.runs} runs, {len(policy.band.curve)} evaluations"
    if policy.job.metric.is_less_better:
        # People know only its own values.
        content = policy.job.metric.with_values(content)
        del content["target_accuracy"], content["mean_accuracy"]
    content["evidence"] = sorted(
        content["evidence"], key=lambda run: (run["study"], run["trial_number"])
    )
    software = {f"software {name}": version for name, version in content.pop("software").items()}
    return {name: value for name, value in (content | software).items() if name not in _ASIDE}
