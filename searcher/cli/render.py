"""Results as tables, sentences and JSON."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import click

from syncswitch.storage.records import TimingPolicy
from syncswitch.trainers.console import print_table, print_text

if TYPE_CHECKING:
    from syncswitch.searcher.result import SearchCost, SearchResult, SettingResult

__all__ = [
    "conditions_text",
    "finite",
    "policy_sentence",
    "print_result",
    "result_as_json",
    "workers_text",
]

# Below this a policy is slower by more than the noise of a few runs.
_NO_GAIN = 0.95
_VERDICTS = {True: "yes", False: "no", None: "open"}


def finite(value: float) -> float | None:
    """A value for JSON, which has no infinity: what is never paid back is null."""
    return value if math.isfinite(value) else None


def workers_text(workers: int, simulated_cluster: str | None) -> str:
    """The size of a cluster, for example `4 simulated`."""
    return f"{workers}" if simulated_cluster is None else f"{workers} simulated"


def conditions_text(online: str, switch_mechanism: str, injections: str | None) -> str:
    """What of the conditions of a run is not the default, for example `elastic, restart`."""
    online_text = "" if online == "none" else online
    mechanism = "" if switch_mechanism == "hot" else switch_mechanism
    return ", ".join(filter(None, (online_text, mechanism, injections)))


def result_as_json(result: SearchResult) -> dict[str, Any]:
    """What `run --json` prints."""
    from syncswitch.storage.policy_file import policy_to_dict

    policy, cost = result.policy, result.cost
    return {
        "policy": policy_to_dict(policy),
        "search": {
            "study": policy.study,
            "strategy": policy.strategy,
            "confidence": policy.confidence,
            "cost_bsp_multiples": cost.bsp_multiples,
            "cost_is_estimated": cost.is_estimated,
            "baseline_seconds": cost.baseline_seconds,
            "paid_seconds": cost.paid_seconds,
            "trials": cost.trials,
            "failed_trials": cost.failed_trials,
            "speculative_trials": cost.speculative_trials,
            "cancelled_trials": cost.cancelled_trials,
            "wall_seconds": cost.wall_seconds,
            "speed_up": _speed_up(policy, cost),
        },
        "settings": [
            {
                **dataclasses.asdict(setting.summary),
                "training_seconds": setting.training_seconds,
            }
            for setting in result.settings
        ],
    }


def print_result(result: SearchResult, how_to_use: str) -> None:
    """The closing table, then the policy in words."""
    policy, cost = result.policy, result.cost
    baseline_title = "time / BSP" if policy.first_protocol == "bsp" else "time / first"
    print_table(
        ["switch at", "runs", "accuracy", "spread", "accepted", "seconds", baseline_title],
        [_setting_cells(setting, cost, policy.first_protocol) for setting in result.settings],
    )
    click.echo()
    print_text(policy_sentence(policy, cost))
    if policy.confidence is not None:
        print_text(
            f"{100 * policy.confidence:.0f} % sure that this is the earliest switch that keeps it."
        )
    print_text(f"{_cost_sentence(cost, policy)} Saved as version {policy.version}; use it with:")
    click.echo(f"  {how_to_use}")


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


def _setting_cells(setting: SettingResult, cost: SearchCost, first_protocol: str) -> list[str]:
    summary = setting.summary
    is_baseline = summary.switch_percent == 100
    spread = summary.standard_deviation
    seconds, baseline = setting.training_seconds, cost.baseline_seconds
    accuracy = "-" if summary.mean_accuracy is None else f"{summary.mean_accuracy:.4f}"
    if summary.diverged_runs:
        accuracy = f"{summary.diverged_runs} diverged"
    return [
        f"{summary.switch_percent:g} %" + (f" ({first_protocol.upper()})" if is_baseline else ""),
        str(summary.runs),
        accuracy,
        "-" if spread is None or summary.diverged_runs else f"{spread:.4f}",
        "target" if is_baseline else _VERDICTS[summary.accepted],
        "-" if seconds is None else f"{seconds:.1f}",
        "-" if seconds is None or not baseline else f"{seconds / baseline:.2f}",
    ]


def _cost_sentence(cost: SearchCost, policy: TimingPolicy) -> str:
    if cost.bsp_multiples is None:
        return f"Search cost: {cost.paid_seconds:.0f} s of training in {cost.trials} runs."
    first = policy.first_protocol.upper()
    about = "about " if cost.is_estimated else ""
    note = " (estimated: no run used it alone)" if cost.is_estimated else ""
    early = ""
    if cost.speculative_trials:
        runs = f"{cost.speculative_trials} run{'s' if cost.speculative_trials > 1 else ''}"
        early = f", with {runs} made in advance"
    return f"Search cost: {about}{cost.bsp_multiples:.1f} {first} trainings{note}{early}."


def _speed_up(policy: TimingPolicy, cost: SearchCost | None) -> float | None:
    if policy.speed_up is not None:
        return policy.speed_up
    if cost is None or not cost.baseline_seconds or not policy.training_seconds:
        return None
    return cost.baseline_seconds / policy.training_seconds


def _faster(policy: TimingPolicy, cost: SearchCost | None) -> str:
    speed_up = _speed_up(policy, cost)
    if speed_up is None:
        return ""
    about = "" if policy.speed_up is not None else "about "
    if speed_up < _NO_GAIN:
        return f", but only {about}{speed_up:.1f} times as fast: the switch gains nothing here"
    return f", {about}{speed_up:.1f} times as fast"
