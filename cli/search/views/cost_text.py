"""What `syncswitch-search cost` prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from syncswitch.cli.console import echo, print_table, print_text
from syncswitch.cli.search.views.result import finite
from syncswitch.searcher.simulation.cost import CostSummary
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.trainers.replay.recording import Recording


def summary_as_json(strategy: Strategy, summary: CostSummary) -> dict[str, Any]:
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
        "strategy": strategy.name,
        "recurring": _is_recurring(strategy),
        "baseline_runs": _baseline_runs(strategy),
        "runs": strategy.runs,
        **values,
        **intervals,
    }


def print_summaries(
    strategies: Sequence[Strategy], summaries: Sequence[CostSummary], recording: Recording
) -> None:
    """A table with a row for each strategy, and what to know of its figures."""
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
        [
            _cells(strategy, summary)
            for strategy, summary in zip(strategies, summaries, strict=True)
        ],
    )
    echo()
    summary = summaries[0]
    threshold = recording.identity.decided_by.with_unit(f"{strategies[0].threshold:g}")
    print_text(
        f"Means of {summary.simulations:,} searches with M = {strategies[0].settings}, replayed on"
        f" {len(recording.runs)} recorded runs. Pays back: the number of trainings after which the"
        f" search has paid off. Success: the answer is {summary.reference_percent:g} % (in brackets"
        " the 95 % interval). Kept: how many of 100 later runs with the answer lose at most"
        f" {threshold}{_usual(summary, first_protocol)}."
    )
    for note in _notes(strategies, summary.reference_percent, recording):
        print_text(note)


def _usual(summary: CostSummary, first_protocol: str) -> str:
    if summary.baseline_kept_percent is None:
        return ""
    return f" ({summary.baseline_kept_percent:.0f} with {first_protocol} alone)"


def _is_recurring(strategy: Strategy) -> bool:
    return strategy.target_accuracy is not None


def _baseline_runs(strategy: Strategy) -> int | None:
    """How often the baseline is run; None where the strategy decides that itself."""
    if not isinstance(strategy, PaperStrategy):
        return None
    return 0 if _is_recurring(strategy) else strategy.runs_at(strategy.highest_percent)


def _cells(strategy: Strategy, summary: CostSummary) -> list[str]:
    baseline_runs = _baseline_runs(strategy)
    success, confidence = summary.success_percent, summary.confidence
    return [
        strategy.name,
        "recurring" if _is_recurring(strategy) else "new",
        "-" if baseline_runs is None else str(baseline_runs),
        str(strategy.runs),
        f"{summary.mean_runs:.1f}",
        f"{summary.search_cost.value:.2f}",
        f"{summary.amortized_recurrences.value:.2f}",
        f"{summary.effective_training.value:.2f}",
        f"{success.value:.1f} ({success.low:.0f}-{success.high:.0f})",
        "-" if summary.kept_percent is None else f"{summary.kept_percent.value:.0f}",
        "-" if confidence is None else f"{100 * confidence:.0f}",
    ]


def _notes(
    strategies: Sequence[Strategy], answer_percent: float, recording: Recording
) -> Iterator[str]:
    """What makes the figures other than they look."""
    adaptive = next(
        (strategy for strategy in strategies if isinstance(strategy, AdaptiveStrategy)), None
    )
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
