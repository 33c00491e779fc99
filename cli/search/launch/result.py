"""Results as tables, sentences and JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from syncswitch.cli.console import echo, print_table, print_text
from syncswitch.searcher.search.pairs import PairOutcome, best_of, paid_trainings, why_dropped
from syncswitch.searcher.search.policy_words import policy_text
from syncswitch.searcher.search.search import SearchResult, SwitchPointResult
from syncswitch.searcher.speed_up import speed_up_of
from syncswitch.searcher.strategies.base import Decided
from syncswitch.searcher.words import (
    NONE,
    accuracy_text,
    counted,
    measured_threshold_text,
    percent_text,
    seconds_text,
    sentence,
)
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
            "threshold_is_measured": bool(result.threshold_runs),
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
    if result.threshold_runs:
        metric, first = policy.decided_by, policy.first_protocol.upper()
        print_text(sentence(measured_threshold_text(policy.threshold, metric, first)))
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


def pairs_as_json(pairs: Sequence[PairOutcome]) -> list[dict[str, Any]]:
    """A value for each pair; those that are not the answer say why."""
    best = best_of(pairs)
    return [
        {
            "protocols": [pair.identity.first_protocol, pair.identity.second_protocol],
            "study": pair.study,
            "switch_percent": _pair_percent(pair),
            "seconds": _pair_seconds(pair),
            "trials": pair.runs,
            "paid_seconds": pair.paid_seconds,
            "dropped": None if best is None or pair is best else why_dropped(pair, best),
        }
        for pair in pairs
    ]


def print_pairs(pairs: Sequence[PairOutcome], baseline_seconds: float | None) -> None:
    """The table, why all but one were dropped, and what all of them cost."""
    best = best_of(pairs)
    assert best is not None  # a search that ended has one
    print_table(
        ["protocols", "switch at", "seconds", "runs", "paid seconds"],
        [
            [
                pair.name,
                NONE if (percent := _pair_percent(pair)) is None else percent_text(percent),
                seconds_text(_pair_seconds(pair)),
                str(pair.runs),
                seconds_text(pair.paid_seconds),
            ]
            for pair in pairs
        ],
    )
    echo()
    for pair in pairs:
        if pair is not best:
            print_text(f"{pair.name} was {why_dropped(pair, best)}.")
    trainings = paid_trainings(pairs, baseline_seconds)
    if trainings is not None:
        first = best.identity.first_protocol.upper()
        print_text(f"All pairs together cost {trainings:.1f} {first} trainings.")
    echo()


def _pair_percent(pair: PairOutcome) -> float | None:
    return pair.found.switch_percent if isinstance(pair.found, Decided) else None


def _pair_seconds(pair: PairOutcome) -> float | None:
    is_known = isinstance(pair.found, Decided) and math.isfinite(pair.seconds)
    return pair.seconds if is_known else None
