"""Results as tables, sentences and JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from syncswitch.cli.console import echo, print_table, print_text
from syncswitch.cli.search.views.pairs import pairs_as_json, print_pairs
from syncswitch.searcher.search.pairs import PairOutcome
from syncswitch.searcher.search.policy_words import policy_text
from syncswitch.searcher.search.result import SearchResult, SwitchPointResult
from syncswitch.searcher.speed_up import speed_up_of
from syncswitch.searcher.words import accuracy_text, counted
from syncswitch.storage.policies.file import policy_to_dict
from syncswitch.storage.queries.search_costs import SearchCost
from syncswitch.storage.records.policy import TimingPolicy

_VERDICTS = {True: "yes", False: "no", None: "open"}


def finite(value: float) -> float | None:
    """A value for JSON, which has no infinity: what is never paid back is null."""
    return value if math.isfinite(value) else None


def result_as_json(result: SearchResult, pairs: Sequence[PairOutcome] = ()) -> dict[str, Any]:
    """What `run --json` prints; the pairs of protocols are those that were searched together."""
    policy, cost = result.policy, result.cost
    speed_up = speed_up_of(policy, cost.baseline_seconds)
    return {
        "policy": policy_to_dict(policy),
        "search": {
            "study": policy.study,
            "strategy": policy.strategy,
            "confidence": policy.confidence,
            "cost_bsp_multiples": cost.bsp_multiples,
            "cost_is_estimated": cost.baseline_is_estimated,
            "baseline_seconds": cost.baseline_seconds,
            "paid_seconds": cost.paid_seconds,
            "trials": cost.completed_runs,
            "failed_trials": cost.failed_runs,
            "speculative_trials": cost.speculative_runs,
            "cancelled_trials": cost.cancelled_runs,
            "wall_seconds": cost.wall_seconds,
            "speed_up": speed_up.value if speed_up else None,
        },
        "switch_points": [
            {
                **policy.decided_by.with_values(dataclasses.asdict(switch_point.summary)),
                "training_seconds": switch_point.training_seconds,
            }
            for switch_point in result.switch_points
        ],
        **({"pairs": pairs_as_json(pairs)} if pairs else {}),
    }


def print_result(result: SearchResult, how_to_use: str, pairs: Sequence[PairOutcome] = ()) -> None:
    """The closing table, then the policy in words; before it what became of several pairs."""
    policy, cost = result.policy, result.cost
    if pairs:
        print_pairs(pairs, cost.baseline_seconds)
    baseline_title = "time / BSP" if policy.first_protocol == "bsp" else "time / first"
    print_table(
        ["switch at", "runs", policy.metric, "spread", "accepted", "seconds", baseline_title],
        [_switch_point_cells(switch_point, cost, policy) for switch_point in result.switch_points],
    )
    echo()
    print_text(policy_text(policy, cost.baseline_seconds))
    print_text(f"{_cost_sentence(cost, policy)} Saved as version {policy.version}; use it with:")
    echo(f"  {how_to_use}")


def _switch_point_cells(
    switch_point: SwitchPointResult, cost: SearchCost, policy: TimingPolicy
) -> list[str]:
    summary, first_protocol = switch_point.summary, policy.first_protocol
    is_baseline = summary.switch_percent == 100
    spread = summary.standard_deviation
    seconds, baseline = switch_point.training_seconds, cost.baseline_seconds
    metric = policy.decided_by
    accuracy = accuracy_text(summary.mean_accuracy, metric)
    if summary.diverged_runs:
        accuracy = f"{summary.diverged_runs} diverged"
    return [
        f"{summary.switch_percent:g} %" + (f" ({first_protocol.upper()})" if is_baseline else ""),
        str(summary.runs),
        accuracy,
        "-" if spread is None or summary.diverged_runs else metric.amount(spread),
        "target" if is_baseline else _VERDICTS[summary.accepted],
        "-" if seconds is None else f"{seconds:.1f}",
        "-" if seconds is None or not baseline else f"{seconds / baseline:.2f}",
    ]


def _cost_sentence(cost: SearchCost, policy: TimingPolicy) -> str:
    if cost.bsp_multiples is None:
        runs = counted(cost.completed_runs, "run")
        return f"Search cost: {cost.paid_seconds:.0f} s of training in {runs}."
    first = policy.first_protocol.upper()
    about = "about " if cost.baseline_is_estimated else ""
    note = " (estimated: no run used it alone)" if cost.baseline_is_estimated else ""
    early = ""
    if cost.speculative_runs:
        runs = counted(cost.speculative_runs, "speculative run")
        early = f", {runs} included"
    return f"Search cost: {about}{cost.bsp_multiples:.1f} {first} trainings{note}{early}."
