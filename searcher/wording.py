"""How people say what policies, clusters and conditions are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncswitch.storage.records import TimingPolicy

if TYPE_CHECKING:
    from syncswitch.searcher.result import SearchCost

__all__ = ["conditions_text", "policy_sentence", "speed_up", "workers_text"]

# Below this a policy is slower by more than the noise of a few runs.
_NO_GAIN = 0.95


def workers_text(workers: int, simulated_cluster: str | None) -> str:
    """The size of a cluster, for example `4 simulated`."""
    return f"{workers}" if simulated_cluster is None else f"{workers} simulated"


def conditions_text(online: str, switch_mechanism: str, injections: str | None) -> str:
    """What of the conditions of a run is not the default, for example `elastic, restart`."""
    online_text = "" if online == "none" else online
    mechanism = "" if switch_mechanism == "hot" else switch_mechanism
    return ", ".join(filter(None, (online_text, mechanism, injections)))


def policy_sentence(policy: TimingPolicy, cost: SearchCost | None = None) -> str:
    """The policy as one would say it."""
    first, second = policy.first_protocol.upper(), policy.second_protocol.upper()
    steps = f"{policy.total_worker_steps:,} worker-steps"
    if policy.switch_percent >= 100:
        sentence = f"Train {policy.workload} with {first} for all of its {steps}"
        reason = f": no setting with {second} that was tried keeps the accuracy"
    else:
        sentence = (
            f"Train {policy.workload} with {first} for the first {policy.switch_percent:g} % of"
            f" its {steps}, then {second}"
        )
        reason = ""
    if policy.mean_accuracy is None:
        against = f", target {policy.target_accuracy:.4f}"
    elif policy.baseline_seconds is not None:
        against = (
            f": accuracy {policy.mean_accuracy:.4f} against {policy.target_accuracy:.4f} with"
            f" {first} alone"
        )
    else:
        against = (
            f": accuracy {policy.mean_accuracy:.4f} against a target of"
            f" {policy.target_accuracy:.4f}"
        )
    if reason:
        return f"{sentence}{reason} ({policy.target_accuracy:.4f}, less {policy.threshold:g})."
    faster = _faster(policy, cost)
    return f"{sentence}{against} ({policy.threshold:g} may be lost){faster}."


def speed_up(policy: TimingPolicy, cost: SearchCost | None = None) -> float | None:
    """Of a training with a policy; None where nobody knows the time of the first protocol alone."""
    if policy.speed_up is not None:
        return policy.speed_up
    if cost is None or not cost.baseline_seconds or not policy.training_seconds:
        return None
    return cost.baseline_seconds / policy.training_seconds


def _faster(policy: TimingPolicy, cost: SearchCost | None) -> str:
    gain = speed_up(policy, cost)
    if gain is None:
        return ""
    about = "" if policy.speed_up is not None else "about "
    if gain < _NO_GAIN:
        return f", but only {about}{gain:.1f} times as fast: the switch gains nothing here"
    return f", {about}{gain:.1f} times as fast"
