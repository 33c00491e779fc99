"""What `syncswitch-search cost` prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.cli.render import finite
from syncswitch.trainers.cli.console import echo, print_table, print_text

if TYPE_CHECKING:
    from syncswitch.searcher.simulation.cost import CostSummary
    from syncswitch.searcher.strategies.base import Rule
    from syncswitch.trainers.replay.recording import Recording

__all__ = ["print_summaries", "summary_as_json"]


def summary_as_json(rule: Rule, summary: CostSummary) -> dict[str, Any]:
    """One row of `cost --json`."""
    measures = dataclasses.asdict(summary)
    intervals = {
        f"{name}_interval": [finite(value["low"]), finite(value["high"])]
        for name, value in measures.items()
        if isinstance(value, dict)
    }
    values = {
        name: finite(value["value"]) if isinstance(value, dict) else value
        for name, value in measures.items()
    }
    return {
        "strategy": rule.name,
        "recurring": _is_recurring(rule),
        "baseline_runs": _baseline_runs(rule),
        "runs": rule.runs,
        **values,
        **intervals,
    }


def print_summaries(
    rules: Sequence[Rule], summaries: Sequence[CostSummary], recording: Recording
) -> None:
    """A table with a row for each rule, and what to know of its figures."""
    first_protocol = recording.identity.first_protocol.upper()
    print_table(
        [
            "strategy",
            "job",
            first_protocol,
            "R",
            "runs",
            f"cost / {first_protocol}",
            "pays back",
            "effective",
            "success %",
            "kept %",
            "sure %",
        ],
        [_cells(rule, summary) for rule, summary in zip(rules, summaries, strict=True)],
    )
    echo()
    summary = summaries[0]
    print_text(
        f"{summary.simulations:,} searches with M = {rules[0].settings}, replayed on"
        f" {len(recording.runs)} recorded runs; paid back after so many trainings; success: the"
        f" answer is {summary.reference_percent:g} % (95 % interval in brackets); kept: of 100"
        f" later runs with the answer so many lose at most {rules[0].threshold:g}"
        f"{_usual(summary, first_protocol)}."
    )
    for note in _notes(rules, summary.reference_percent, recording):
        print_text(note)


def _usual(summary: CostSummary, first_protocol: str) -> str:
    if summary.baseline_kept_percent is None:
        return ""
    return f", of those with {first_protocol} alone {summary.baseline_kept_percent:.0f}"


def _is_recurring(rule: Rule) -> bool:
    return rule.target_accuracy is not None


def _baseline_runs(rule: Rule) -> int | None:
    """How often the baseline is run; None where the rule decides that itself."""
    from syncswitch.searcher.strategies.halving import HalvingRule

    if not isinstance(rule, HalvingRule):
        return None
    return 0 if _is_recurring(rule) else rule.runs_at(rule.highest_percent)


def _cells(rule: Rule, summary: CostSummary) -> list[str]:
    baseline_runs = _baseline_runs(rule)
    success, confidence = summary.success_percent, summary.confidence
    return [
        rule.name,
        "recurring" if _is_recurring(rule) else "new",
        "-" if baseline_runs is None else str(baseline_runs),
        str(rule.runs),
        f"{summary.mean_runs:.1f}",
        f"{summary.search_cost.value:.2f}",
        f"{summary.amortized_recurrences.value:.2f}",
        f"{summary.effective_training.value:.2f}",
        f"{success.value:.1f} ({success.low:.0f}-{success.high:.0f})",
        "-" if summary.kept_percent is None else f"{summary.kept_percent.value:.0f}",
        "-" if confidence is None else f"{100 * confidence:.0f}",
    ]


def _notes(rules: Sequence[Rule], answer_percent: float, recording: Recording) -> Iterator[str]:
    """What makes the figures other than they look."""
    from syncswitch.searcher.strategies.adaptive import AdaptiveRule

    adaptive = next((rule for rule in rules if isinstance(rule, AdaptiveRule)), None)
    if adaptive is not None and answer_percent not in adaptive.grid():
        tried = ", ".join(f"{percent:g}" for percent in reversed(adaptive.grid()))
        yield (
            f"The adaptive strategy never answers {answer_percent:g} %: it tries {tried} % alone."
        )
    stopped = sum(run.stopped_early for run in recording.runs)
    if stopped:
        yield (
            f"{stopped} of the recorded runs were stopped early; what the rest of them would have"
            " taken is estimated."
        )
