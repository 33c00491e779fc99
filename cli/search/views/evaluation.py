"""What `evaluate` shows: a policy on one job, or several on several."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from syncswitch.cli.console import echo, print_table, print_text
from syncswitch.searcher.comparison.transfer import EvaluatedSwitchPoint, EvaluationResult
from syncswitch.searcher.search.policy_words import speed_up_text
from syncswitch.searcher.speed_up import SpeedUp
from syncswitch.searcher.words import (
    accuracy_around,
    accuracy_text,
    counted,
    metric_title,
    named_text,
    run_conditions_text,
    workers_text,
)


def _switch_points(result: EvaluationResult) -> list[tuple[str, str, EvaluatedSwitchPoint]]:
    """Role, name for people, and runs of each row."""
    policy, own = result.policy, result.own_policy
    rows = [("policy", f"{policy.workload} version {policy.version}", result.foreign)]
    if own is not None and result.own is not None:
        rows.append(("own", f"its own, version {own.version}", result.own))
    first = result.identity.first_protocol.upper()
    return [*rows, ("baseline", f"{first} alone", result.baseline)]


def result_as_json(result: EvaluationResult) -> dict[str, Any]:
    """All that is known of it."""
    policy, identity, own = result.policy, result.identity, result.own_policy
    return {
        "policy": {
            "workload": policy.workload,
            "fingerprint": policy.fingerprint,
            "version": policy.version,
            "workers": policy.workers,
            "switch_percent": policy.switch_percent,
            "threshold": policy.threshold,
        },
        "workload": identity.name,
        "fingerprint": identity.fingerprint,
        "workers": identity.workers,
        "simulated_cluster": identity.simulated_cluster,
        "protocols": [identity.first_protocol, identity.second_protocol],
        **identity.decided_by.naming,
        "conditions": dataclasses.asdict(result.conditions),
        "own_policy_version": None if own is None else own.version,
        "study": result.study,
        "new_runs": result.new_runs,
        "switch_points": [
            {
                "role": role,
                **identity.decided_by.with_values(dataclasses.asdict(switch_point)),
                "kept_runs": result.kept_runs(switch_point),
                **_speed_up_as_json(result.measured_speed_up(switch_point)),
            }
            for role, _, switch_point in _switch_points(result)
        ],
        "keeps_accuracy": result.keeps_accuracy,
        "share_of_own_speed_up": result.share_of_own_speed_up,
    }


def _speed_up_as_json(found: SpeedUp | None) -> dict[str, float | None]:
    """Null where all runs diverged; the ends also where too few were timed."""
    return {
        "speed_up": found.value if found else None,
        "speed_up_low": found.low if found else None,
        "speed_up_high": found.high if found else None,
    }


def print_result(result: EvaluationResult) -> None:
    """The table, then the verdict."""
    print_table(
        [
            "policy",
            "switch at",
            "runs",
            "diverged",
            "kept",
            result.identity.decided_by.name,
            "seconds",
            "times as fast",
        ],
        [[name, *_cells(switch_point, result)] for _, name, switch_point in _switch_points(result)],
    )
    echo()
    print_text(_verdict(result))
    text = run_conditions_text(result.conditions)
    if text:
        print_text(f"All runs trained under these conditions: {text}.")


def print_matrix(results: Sequence[EvaluationResult]) -> None:
    """A row for each policy on each job."""
    title = metric_title(result.identity.decided_by for result in results)
    print_table(
        [
            "policy of",
            "workload",
            "workers",
            "switch at",
            "runs",
            "diverged",
            "kept",
            title,
            "seconds",
            "times as fast",
            "keeps it",
        ],
        [
            [
                result.policy.workload,
                result.identity.name,
                workers_text(result.identity.workers, result.identity.simulated_cluster),
                *_cells(result.foreign, result, title),
                "yes" if result.keeps_accuracy else "no",
            ]
            for result in results
        ],
    )


def _cells(
    switch_point: EvaluatedSwitchPoint, result: EvaluationResult, title: str | None = None
) -> list[str]:
    metric, speed_up = result.identity.decided_by, result.speed_up(switch_point)
    text = accuracy_around(switch_point.mean_accuracy, switch_point.accuracy_half_width, metric)
    return [
        f"{switch_point.switch_percent:g} %",
        str(switch_point.runs),
        str(switch_point.diverged_runs),
        str(result.kept_runs(switch_point)),
        text if title is None else named_text(text, metric, title),
        "-" if switch_point.training_seconds is None else f"{switch_point.training_seconds:.1f}",
        "-" if speed_up is None else f"{speed_up:.2f}",
    ]


def _verdict(result: EvaluationResult) -> str:
    """Whether the policy keeps the accuracy, and what it gains, in one sentence."""
    policy, foreign, identity = result.policy, result.foreign, result.identity
    what = (
        f"The policy of {policy.workload} for {policy.workers} workers (version {policy.version})"
    )
    size = workers_text(identity.workers, identity.simulated_cluster)
    name = f"{identity.name} on {size} workers"
    metric = identity.decided_by
    if foreign.diverged_runs:
        return (
            f"{what} does not keep the {metric.name} of {name}: {foreign.diverged_runs} of"
            f" {counted(foreign.runs, 'run')} diverged."
        )
    does = "keeps" if result.keeps_accuracy else "does not keep"
    reached = accuracy_text(foreign.mean_accuracy, metric)
    return (
        f"{what} {does} the {metric.name} of {name}: {reached} against"
        f" {accuracy_text(result.baseline.mean_accuracy, metric)} with"
        f" {identity.first_protocol.upper()} alone ({result.kept_runs(foreign)} of"
        f" {counted(foreign.runs, 'run')} {metric.lose_at_most(policy.threshold)}){_gain(result)}."
    )


def _gain(result: EvaluationResult) -> str:
    speed_up, own = result.measured_speed_up(result.foreign), result.speed_up(result.own)
    share = result.share_of_own_speed_up
    if speed_up is None:
        return ""
    gain = f", {speed_up_text(speed_up, 2)}"
    if share is None:
        return gain
    return f"{gain}: {100 * share:.0f} % of the {own:.2f} times that its own policy gives"
