"""`syncswitch-search cost`: what a search costs, replayed on recorded runs."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from syncswitch.storage.errors import UserError
from syncswitch.trainers.console import (
    EXIT_OK,
    common_options,
    print_json,
    print_table,
    print_text,
    protocols_option,
)

if TYPE_CHECKING:
    from syncswitch.searcher.cost import CostSummary, Estimate, RecordedRun
    from syncswitch.searcher.rules.paper import PaperRule

__all__ = ["cost"]

# Baseline and candidate runs of the rows of the paper's Tables IV to VI.
_NEW_JOB_ROWS = ((5, 5), (4, 4), (3, 3), (2, 2), (1, 1), (1, 5), (1, 4), (1, 3), (1, 2))
_RECURRING_ROWS = (5, 4, 3, 2, 1)


@click.command()
@click.argument("reference", metavar="WORKLOAD")
@click.option("--workers", type=click.IntRange(min=1), help="Only runs on this many workers.")
@protocols_option("bsp,asp")
@click.option(
    "--strategy",
    type=click.Choice(["paper"]),
    default="paper",
    show_default=True,
    help="Rule of the search: paper = binary search (Sync-Switch, Algorithm 1).",
)
@click.option(
    "--settings",
    type=click.IntRange(1, 30),
    help="Switch points to try (M). Default: as deep as runs are recorded.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Runs of each candidate (R).",
)
@click.option(
    "--baseline-runs",
    type=click.IntRange(1, 1000),
    help="Runs of the first protocol alone. Default: as --runs.",
)
@click.option(
    "--threshold",
    type=float,
    default=0.01,
    show_default=True,
    help="Accuracy that may be lost against the target (beta).",
)
@click.option(
    "--recurring",
    is_flag=True,
    help="A job whose accuracy is known: no baseline runs; the target is their recorded mean.",
)
@click.option(
    "--simulations",
    type=click.IntRange(min=10),
    default=1000,
    show_default=True,
    help="Searches to replay.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draws."
)
@click.option("--table", is_flag=True, help="All rows of the paper's Tables IV to VI.")
@common_options
def cost(
    reference: str,
    workers: int | None,
    protocols: str | None,
    strategy: str,
    settings: int | None,
    runs: int,
    baseline_runs: int | None,
    threshold: float,
    recurring: bool,
    simulations: int,
    seed: int,
    table: bool,
    storage_url: str,
    as_json: bool,
) -> int:
    """Says what a search for WORKLOAD costs, by replaying its recorded runs.

    Each simulated search draws among the recorded runs of a setting without replacement, and
    anew once all are drawn. The search cost is in trainings with the first protocol alone; it is a
    success where the search answers what it would answer if it knew all recorded runs.
    """
    from syncswitch.searcher.cost import deepest_settings
    from syncswitch.searcher.plan import SearchPlan
    from syncswitch.searcher.rules.paper import PaperRule

    _refuse_together("--table", table, ("runs", "baseline_runs", "recurring"))
    _refuse_together("--recurring", recurring, ("baseline_runs",))
    base = PaperRule(threshold=threshold)
    SearchPlan(base).check()
    pair = protocols or "bsp,asp"
    recorded = _recorded(storage_url, reference, workers, pair)
    _check_baseline(reference, recorded)
    depth = settings or deepest_settings(base, recorded)
    if not depth:
        raise UserError(
            f"{reference}: no run at the first candidate, 50 %, is recorded; a search cannot be"
            " replayed without it"
        )
    base = dataclasses.replace(base, settings=depth)
    kinds = (
        [(b, r, False) for b, r in _NEW_JOB_ROWS] + [(0, r, True) for r in _RECURRING_ROWS]
        if table
        else [(0 if recurring else baseline_runs or runs, runs, recurring)]
    )
    rows = [
        (kind, _replayed(_with(base, *kind, recorded), recorded, simulations, seed))
        for kind in kinds
    ]
    if as_json:
        answers = [_as_json(kind, summary, strategy) for kind, summary in rows]
        print_json(answers if table else answers[0])
    else:
        _print(rows, depth, len(recorded), pair.split(",")[0].upper())
    return EXIT_OK


def _refuse_together(option: str, is_given: bool, others: tuple[str, ...]) -> None:
    context = click.get_current_context()
    for name in others:
        source = context.get_parameter_source(name)
        if is_given and source == ParameterSource.COMMANDLINE:
            raise UserError(f"{option} and --{name.replace('_', '-')} exclude each other")


def _recorded(
    storage_url: str, reference: str, workers: int | None, protocols: str
) -> list[RecordedRun]:
    """The complete runs that count for a setting, of one workload.

    Raises:
        UserError: There are none, or they are of several workloads.
    """
    from syncswitch.searcher.cost import RecordedRun
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.inspection import shown
    from syncswitch.storage.trials import TrialStore
    from syncswitch.trainers.protocols import parse_pair
    from syncswitch.trainers.workload import normal_reference

    pair = parse_pair(protocols)
    with open_database(storage_url, create=False) as database:
        trials = [
            trial
            for trial in TrialStore(database).trials(workload=normal_reference(reference))
            if trial.state == "complete"
            and trial.setting_percent is not None
            and (trial.first_protocol, trial.second_protocol) == pair
            and workers in (None, trial.workers)
        ]
    clusters = {trial.fingerprint: trial.workers for trial in trials}
    if not clusters:
        raise UserError(
            f"no complete runs of {reference!r} with {protocols} in {shown(storage_url)};"
            " `syncswitch-search run` or `syncswitch-search import` adds them"
        )
    if len(clusters) > 1:
        found = ", ".join(f"{name[:12]} ({size} workers)" for name, size in clusters.items())
        raise UserError(
            f"{reference!r} names {len(clusters)} workloads: {found}; choose with --workers or the"
            " fingerprint"
        )
    return [
        RecordedRun(
            setting_percent=trial.setting_percent or 0.0,
            accuracy=trial.converged_accuracy or 0.0,
            seconds=trial.training_seconds or 0.0,
            diverged=bool(trial.diverged),
        )
        for trial in trials
    ]


def _check_baseline(reference: str, recorded: list[RecordedRun]) -> None:
    """Refuses a job without the unit of its cost."""
    from syncswitch.searcher.cost import BASELINE_PERCENT

    baseline = [run for run in recorded if run.setting_percent == BASELINE_PERCENT]
    if not baseline:
        raise UserError(
            f"{reference}: no run of the first protocol alone (setting 100 %) is recorded, and its"
            " time is the unit of the cost; record or import such runs"
        )
    if any(run.diverged for run in baseline):
        raise UserError(
            f"{reference}: a run of the first protocol alone diverged, so there is no accuracy to"
            " compare with; a search would end there as well"
        )


def _with(
    base: PaperRule, baseline_runs: int, runs: int, recurring: bool, recorded: list[RecordedRun]
) -> PaperRule:
    from syncswitch.searcher.cost import BASELINE_PERCENT

    target = None
    if recurring:
        target = statistics.fmean(
            run.accuracy for run in recorded if run.setting_percent == BASELINE_PERCENT
        )
    return dataclasses.replace(
        base, runs=runs, baseline_runs=baseline_runs or None, target_accuracy=target
    )


def _replayed(
    rule: PaperRule, recorded: list[RecordedRun], simulations: int, seed: int
) -> CostSummary:
    from syncswitch.searcher.cost import reference, simulate, summarize

    expected = reference(rule, recorded)
    return summarize(simulate(rule, recorded, simulations, seed), recorded, expected)


def _as_json(kind: tuple[int, int, bool], summary: CostSummary, strategy: str) -> dict[str, Any]:
    baseline_runs, runs, recurring = kind
    measures = dataclasses.asdict(summary)
    intervals = {
        f"{name}_interval": [_finite(value["low"]), _finite(value["high"])]
        for name, value in measures.items()
        if isinstance(value, dict)
    }
    values = {
        name: _finite(value["value"]) if isinstance(value, dict) else value
        for name, value in measures.items()
    }
    return {
        "strategy": strategy,
        "recurring": recurring,
        "baseline_runs": baseline_runs,
        "runs": runs,
        **values,
        **intervals,
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity: a search that is never paid back is null."""
    return value if math.isfinite(value) else None


def _print(
    rows: list[tuple[tuple[int, int, bool], CostSummary]],
    depth: int,
    recorded_runs: int,
    first_protocol: str,
) -> None:
    first = rows[0][1]
    print_table(
        [
            "job",
            f"{first_protocol} runs",
            "runs",
            f"cost / {first_protocol}",
            "pays back after",
            "effective",
            "success %",
        ],
        [
            [
                "recurring" if recurring else "new",
                str(baseline_runs),
                str(runs),
                f"{summary.search_cost.value:.2f}",
                f"{summary.amortized_recurrences.value:.2f}",
                f"{summary.effective_training.value:.2f}",
                _share(summary.success_percent),
            ]
            for (baseline_runs, runs, recurring), summary in rows
        ],
    )
    click.echo()
    print_text(
        f"{first.simulations:,} searches with M = {depth}, replayed on {recorded_runs} recorded"
        f" runs; success: the answer is {first.reference_percent:g} % (95 % interval in brackets)."
    )


def _share(estimate: Estimate) -> str:
    return f"{estimate.value:.1f} ({estimate.low:.0f} to {estimate.high:.0f})"
