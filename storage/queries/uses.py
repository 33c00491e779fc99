"""The table of later runs with policies, each with the demands of its policy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from syncswitch.storage.columns import MeasuredJobColumns
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.choice import JobChoice
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.summary import is_use_kept

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class PolicyUseFacts(MeasuredJobColumns):
    """The columns of `uses`."""

    use_id: Annotated[str, "identifier, the same in every database"]
    policy_version: Annotated[int, "version of the policy that it trained with"]
    switch_percent: Annotated[float, "percent of W in the first protocol"]
    seed: Annotated[int, "seed of parameters and order of data"]
    accuracy: Annotated[float, "converged accuracy, 0 to 1"]
    value: Annotated[float, "the same as a value of the metric, in its unit"]
    target_accuracy: Annotated[float, "target of the policy"]
    target_value: Annotated[float, "the same as a value of the metric, in its unit"]
    threshold: Annotated[float, "beta, the accuracy that may be lost; in the metric's unit"]
    diverged: Annotated[bool, "whether it diverged"]
    kept: Annotated[bool, "whether it lost at most beta, and did not diverge"]
    guard: Annotated[str, "off, quiet, or alarmed (it sent the run back to its switch)"]
    failed_percents: Annotated[str | None, "switches that failed, joined by ', '; null for none"]
    held_percent: Annotated[
        float, "switch with which it came to its end; 100 for the first protocol alone"
    ]
    guard_alarm: Annotated[
        str | None, "each failed switch with the reason of its alarm, joined by '; '; null for none"
    ]
    guard_lost_seconds: Annotated[
        float | None, "training time from failed switches to their alarms; null without any"
    ]
    training_seconds: Annotated[float, "training time, the cost of alarms included"]
    baseline_seconds: Annotated[
        float | None,
        "training time of the first protocol alone, as the policy states it; null if unknown",
    ]
    speed_up: Annotated[float | None, "baseline seconds over training seconds"]
    online: Annotated[str, "policy on stragglers: none, greedy or elastic"]
    switch_mechanism: Annotated[str, "way of switching: hot or restart"]
    injections: Annotated[
        str | None, "disturbances on purpose, joined by '; '; such a use is not counted"
    ]
    started_at: Annotated[datetime, "UTC"]
    ended_at: Annotated[datetime, "UTC"]
    host: Annotated[str, "machine of the chief"]


def use_facts(database: Database, **choice: Unpack[JobChoice]) -> list[PolicyUseFacts]:
    """Returns the uses in the order of their recording; see `JobChoice`."""
    uses = TrialStore(database).trials(kinds=("use",), **choice)
    jobs = {use.fingerprint for use in uses}
    registry = PolicyRegistry(database)
    policies = {
        (fingerprint, policy.version): policy
        for fingerprint in jobs
        for policy in registry.policies(workload=fingerprint)
    }
    return [_facts(use, policies[use.fingerprint, use.policy_version or 0]) for use in uses]


def _facts(use: StoredTrial, policy: TimingPolicy) -> PolicyUseFacts:
    baseline, seconds = policy.baseline_seconds, use.training_seconds
    failed = use.failed
    others: dict[str, Any] = {
        "accuracy": use.converged_accuracy,
        "value": use.converged_value,
        "target_accuracy": policy.target_accuracy,
        "target_value": policy.decided_by.value(policy.target_accuracy),
        "threshold": policy.threshold,
        "kept": is_use_kept(policy, use),
        "failed_percents": ", ".join(f"{one.switch_percent:g}" for one in failed) or None,
        "guard_alarm": "; ".join(f"{one.switch_percent:g} %: {one.alarm}" for one in failed)
        or None,
        "baseline_seconds": baseline,
        "speed_up": baseline / seconds if baseline and seconds else None,
    }
    names = {field.name for field in fields(PolicyUseFacts)} - others.keys()
    return PolicyUseFacts(**others, **{name: getattr(use, name) for name in names})
