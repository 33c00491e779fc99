"""What a search costs: the measures of the paper's Tables IV to VI, replayed on recorded runs."""

from __future__ import annotations

import dataclasses
import functools
import os
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import click

from reproduction.measures import CostSummary, deepest_switch_points, reference, summarize
from reproduction.replays import PlayedRecording, simulate
from syncswitch.cli.completion import complete_workload
from syncswitch.cli.console import (
    Row,
    echo,
    finite,
    print_json,
    print_rows,
    print_text,
    progress_bars,
    rich_console,
)
from syncswitch.cli.group import ProgramCommand
from syncswitch.cli.options import common_options, is_given, protocols_option, workers_option
from syncswitch.cli.search.launch.run import strategy_options
from syncswitch.cli.search.selection import cluster_option
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.baseline import THRESHOLD_RUNS, measured_threshold
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.registry import make_strategy
from syncswitch.searcher.words import value_text
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import LARGEST_SEED
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.trainers.protocols import parse_named_pair
from syncswitch.trainers.replay import Recording, read_recording

# The baseline and candidate runs in the rows of the paper's Tables IV to VI.
_NEW_JOB_ROWS = ((5, 5), (4, 4), (3, 3), (2, 2), (1, 1), (1, 5), (1, 4), (1, 3), (1, 2))
_RECURRING_ROWS = (5, 4, 3, 2, 1)
_MOST_RUNS = 1000
# More would take longer to start than they save.
_MOST_PROCESSES = 8


@dataclasses.dataclass(frozen=True)
class _Row:
    """A search to simulate; `recurring` means that its target accuracy A is known."""

    strategy: str
    recurring: bool
    runs: int
    options: dict[str, Any]


@click.command(cls=ProgramCommand)
@click.argument("reference", metavar="WORKLOAD", shell_complete=complete_workload)
@workers_option(None, "Only runs on this many workers.")
@protocols_option("bsp,asp")
@cluster_option
@click.option(
    "--halvings",
    type=click.IntRange(1, 30),
    help="How often the range of switch points may be halved (M). Default: as often as there are"
    " recorded runs for.",
)
@strategy_options
@click.option(
    "--recurring",
    is_flag=True,
    help="Take the target accuracy as known: the mean of the job's recorded baseline runs.",
)
@click.option(
    "--simulations",
    type=click.IntRange(10, 1_000_000),
    default=1000,
    show_default=True,
    help="Number of searches to replay.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=0,
    show_default=True,
    help="Seed of the random draws.",
)
@click.option(
    "--table",
    is_flag=True,
    help="Replay all rows of the paper's Tables IV to VI, and the adaptive strategy beside them.",
)
@common_options
def cost(
    reference: str,
    workers: int | None,
    protocols: str,
    cluster: str | None,
    halvings: int | None,
    strategy: str,
    runs: int,
    threshold: float | None,
    recurring: bool,
    simulations: int,
    seed: int,
    table: bool,
    storage_url: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Estimate what a search for WORKLOAD costs, by replaying its recorded runs.

    Each simulated search draws from the recorded runs of a switch point without replacement, and
    starts over once all are drawn. A run that is stopped costs the time up to that point; a run
    that starts from a checkpoint costs the time after it. Costs are in trainings with the first
    protocol alone. A search succeeds if it gives the answer that the paper's search would give if
    it knew all recorded runs.
    """
    if table:
        _refuse_together("--table", ("strategy", "runs", "recurring", *options))
    if recurring:
        _refuse_together("--recurring", ("baseline_runs",))
    rows = _table_rows() if table else [_Row(strategy, recurring, runs, options)]
    first = _strategy_of(rows[0], halvings or 1, threshold)
    SearchPlan(dataclasses.replace(first, accuracy_range=(None, None))).check()
    _check_most_runs(runs, options["baseline_runs"])
    pair = parse_named_pair(protocols)
    with open_database(storage_url, create=False) as database:
        recording = read_recording(
            database, reference, workers=workers, protocols=pair, cluster=cluster
        )
    metric = recording.identity.metric
    _check_baseline(reference, recording)
    if threshold is None and not metric.has_usual_threshold:
        baseline = [run.accuracy for run in recording.at(BASELINE_PERCENT) if not run.diverged]
        threshold = measured_threshold(baseline)
        if threshold is None:
            raise UserError(
                f"{metric.name} has no usual --threshold, and it takes {THRESHOLD_RUNS} recorded"
                " runs of the first protocol alone to measure one; give --threshold"
            )
    # Only the last row of a table has runs that are stopped.
    last = _strategy_of(rows[-1], 1, threshold)
    stop = StopRule.of(last, recording.identity.recipe.learning_rate_boundaries)
    played = PlayedRecording.of(recording, stop)
    depth = halvings or _deepest_switch_points(reference, last.threshold, played)
    strategies = [
        _knowing(strategy, recording) if row.recurring else strategy
        for row in rows
        for strategy in [_strategy_of(row, depth, threshold).measured_by(metric)]
    ]
    summaries = _simulated(strategies, played, simulations, seed)
    if as_json:
        answers = [_summary_as_json(*one) for one in zip(strategies, summaries, strict=True)]
        print_json(answers if table else answers[0])
    else:
        _print_summaries(strategies, summaries, recording)


def _refuse_together(option: str, names: Sequence[str]) -> None:
    for parameter in click.get_current_context().command.params:
        if parameter.name in names and is_given(parameter.name):
            flags = "/".join((*parameter.opts, *parameter.secondary_opts))
            raise UserError(f"{option} and {flags} exclude each other")


def _check_most_runs(runs: int, baseline_runs: int | None) -> None:
    for option, value in (("--runs", runs), ("--baseline-runs", baseline_runs or 1)):
        if value > _MOST_RUNS:
            raise UserError(f"{option} is {value}: give a whole number, 1 to {_MOST_RUNS}")


def _table_rows() -> list[_Row]:
    return [
        *(_Row("paper", False, runs, {"baseline_runs": first}) for first, runs in _NEW_JOB_ROWS),
        *(_Row("paper", True, runs, {}) for runs in _RECURRING_ROWS),
        *(_Row("adaptive", recurring, 5, {}) for recurring in (False, True)),
    ]


def _strategy_of(row: _Row, halvings: int, threshold: float | None) -> Strategy:
    return make_strategy(
        row.strategy,
        halvings=halvings,
        runs=row.runs,
        threshold=threshold,
        target_accuracy=None,
        **row.options,
    )


def _knowing(strategy: Strategy, recording: Recording) -> Strategy:
    """Returns the strategy with A from the recorded runs of the first protocol alone."""
    accuracies = [run.accuracy for run in recording.at(BASELINE_PERCENT)]
    known: dict[str, Any] = {"target_accuracy": statistics.fmean(accuracies)}
    if any(field.name == "target_runs" for field in dataclasses.fields(strategy)):
        known["target_runs"] = len(accuracies)
    return dataclasses.replace(strategy, **known)


def _check_baseline(reference: str, recording: Recording) -> None:
    """Raises UserError if there are no runs for the unit of the cost."""
    baseline = recording.at(BASELINE_PERCENT)
    if not baseline:
        raise UserError(
            f"{reference}: no run of the first protocol alone (switch point 100 %) is recorded,"
            " and its time is the unit of the cost; make or import such runs"
        )
    if any(run.diverged for run in baseline):
        raise UserError(
            f"{reference}: a run of the first protocol alone diverged, so there is no accuracy to"
            " compare with; a search would end there as well"
        )


def _deepest_switch_points(reference: str, threshold: float, runs: PlayedRecording) -> int:
    halvings = deepest_switch_points(threshold, runs)
    if not halvings:
        raise UserError(
            f"{reference}: no run at the first candidate, 50 %, is recorded, and a search cannot be"
            " replayed without one; make some with syncswitch-search sweep --at 50"
        )
    return halvings


def _simulated(
    strategies: Sequence[Strategy], runs: PlayedRecording, simulations: int, seed: int
) -> list[CostSummary]:
    expected = [reference(strategy, runs) for strategy in strategies]
    processes = min(os.cpu_count() or 1, _MOST_PROCESSES)
    with progress_bars(rich_console(stderr=True)) as bars:
        task = bars.add_task("simulated searches", total=simulations * len(strategies))
        searches = [
            simulate(
                strategy,
                runs,
                simulations,
                seed,
                processes=processes,
                on_done=functools.partial(bars.advance, task),
            )
            for strategy in strategies
        ]
    return [summarize(found, runs, known) for found, known in zip(searches, expected, strict=True)]


def _summary_as_json(strategy: Strategy, summary: CostSummary) -> dict[str, Any]:
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


def _print_summaries(
    strategies: Sequence[Strategy], summaries: Sequence[CostSummary], recording: Recording
) -> None:
    first_protocol = recording.identity.first_protocol.upper()
    print_rows(
        [
            _cells(strategy, summary, first_protocol)
            for strategy, summary in zip(strategies, summaries, strict=True)
        ]
    )
    echo()
    summary = summaries[0]
    threshold = recording.identity.metric.with_unit(f"{strategies[0].threshold:g}")
    print_text(
        f"Means of {summary.simulations:,} searches with M = {strategies[0].halvings}, replayed on"
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
    """The number of baseline runs; None if the strategy decides that itself."""
    if not isinstance(strategy, PaperStrategy):
        return None
    return 0 if _is_recurring(strategy) else strategy.runs_at(strategy.highest_percent)


def _cells(strategy: Strategy, summary: CostSummary, first_protocol: str) -> Row:
    success, kept, confidence = summary.success_percent, summary.kept_percent, summary.confidence
    return [
        ("strategy", strategy.name),
        ("job", "recurring" if _is_recurring(strategy) else "new"),
        (first_protocol, value_text(_baseline_runs(strategy), "d")),
        ("R", str(strategy.runs)),
        ("runs", f"{summary.mean_runs:.1f}"),
        (f"cost / {first_protocol}", f"{summary.search_cost.value:.2f}"),
        ("pays back", f"{summary.amortized_recurrences.value:.2f}"),
        ("effective", f"{summary.effective_training.value:.2f}"),
        ("success %", f"{success.value:.1f} ({success.low:.0f}-{success.high:.0f})"),
        ("kept %", value_text(None if kept is None else kept.value, ".0f")),
        ("sure %", value_text(None if confidence is None else 100 * confidence, ".0f")),
    ]


def _notes(
    strategies: Sequence[Strategy], answer_percent: float, recording: Recording
) -> Iterator[str]:
    """Yields notes that a reader of the figures needs."""
    adaptive = next(
        (strategy for strategy in strategies if isinstance(strategy, AdaptiveStrategy)), None
    )
    if adaptive is not None and answer_percent not in adaptive.grid():
        tried = ", ".join(f"{percent:g}" for percent in reversed(adaptive.grid()))
        yield (
            f"The adaptive strategy cannot answer {answer_percent:g} %: it only tries {tried} %."
        )
    stopped = sum(run.stopped_early for run in recording.runs)
    if stopped:
        yield (
            f"{stopped} of the recorded runs were stopped early; what the rest of them would have"
            " taken is estimated."
        )
