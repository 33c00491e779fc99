"""`syncswitch-search trials` and `switch-points`: training runs, singly and summarized."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import chain, groupby
from pathlib import Path
from typing import Any, BinaryIO, Literal

import click

from syncswitch.cli.completion import complete_study
from syncswitch.cli.console import Row, echo, print_json, print_rows
from syncswitch.cli.options import common_options
from syncswitch.cli.search.rows import (
    chosen_format,
    newest_of,
    nothing_found,
    optional_workload,
    output_option,
    print_newest,
    selector_of,
    write_rows,
)
from syncswitch.searcher.search.observations import state_of
from syncswitch.searcher.words import (
    NONE,
    accuracy_interval,
    accuracy_text,
    conditions_text,
    named_text,
    switch_text,
    value_text,
    workers_text,
)
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.export import tables
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.queries import run_rows
from syncswitch.storage.queries.summaries import SwitchPointStatistics, switch_point_statistics
from syncswitch.storage.records.flat import flat, nested, values_of
from syncswitch.storage.records.job import Job, Protocols, ScheduledJob
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.trials.choice import TrialChoice
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial

_Rows = Literal["evaluations", "events", "trials"]
_FORMATS = ("table", "csv", "json", "parquet")


@click.command()
@optional_workload
@click.option(
    "--format",
    "format_name",
    type=click.Choice(_FORMATS),
    help="csv, json and parquet have every field of a run; --json is --format json."
    "  [default: table]",
)
@output_option
@click.option(
    "--evaluations",
    "wants_evaluations",
    is_flag=True,
    help="One row per evaluation instead: the accuracy curves. Not as a table.",
)
@click.option(
    "--events",
    "wants_events",
    is_flag=True,
    help="One row per event instead: stragglers, failures and the reactions to them.",
)
@click.option(
    "--study", metavar="NAME", shell_complete=complete_study, help="Only the runs of this search."
)
@common_options
def trials(
    reference: str | None,
    format_name: str | None,
    output: Path | None,
    wants_evaluations: bool,
    wants_events: bool,
    study: str | None,
    storage_url: str,
    as_json: bool,
) -> None:
    """List the training runs of WORKLOAD, or of all.

    These are the runs of searches and imported runs; `uses list` has the later runs with a policy.

    A complete run was trained to its end, was stopped early, or diverged; a cancelled run was
    stopped when the search no longer needed it. A speculative run began before it was clear that
    the search needs it. `from` is the run whose checkpoint a run began with, and the percentage of
    the job done there; all seconds count from the start of the job. `under` names the online
    policy, the way of switching and the injections if they are not the default.

    The table and JSON call a run stale if its process is dead; CSV and Parquet have the stored
    state.
    """
    if wants_evaluations and wants_events:
        raise UserError(
            "--evaluations and --events are two tables; give one of them",
            code="parameters-conflict",
        )
    only_files = {"--evaluations": wants_evaluations}
    kind = chosen_format(format_name, output, as_json, "csv, json or parquet", only_files)
    if kind == "parquet" and output is None and sys.stdout.isatty():
        raise UserError(
            "Parquet cannot be shown on a terminal; name a file with -o FILE",
            code="parameter-missing",
        )
    workload = selector_of(reference)
    choice: TrialChoice = {"kinds": ("search", "import"), "workload": workload, "study": study}
    with open_database(storage_url, create=False) as database:
        if kind == "table" and wants_events:
            of = f" of {reference}" if reference else ""
            _print_events(database, choice, f"nothing happened to any run{of}")
            return
        if kind == "table":
            rows = TrialStore(database).each_trial(**choice)
            print_newest(rows, _cells, nothing_found(reference, "run"))
            return
        name: _Rows = "evaluations" if wants_evaluations else "events" if wants_events else "trials"
        write_rows(name, output, lambda file: _export(database, name, choice, kind, file))


def _export(
    database: Database, name: _Rows, choice: TrialChoice, kind: str, file: BinaryIO
) -> None:
    if kind == "json" and name == "trials":
        rows = TrialStore(database).each_trial(**choice)
        tables.write_text(file, tables.json_text(map(_document, rows)))
        return
    blocks = database.row_blocks(getattr(run_rows, name)(choice))
    if kind == "json":
        tables.write_text(
            file, tables.json_text(row._asdict() for block in blocks for row in block)
        )
    elif kind == "csv":
        tables.write_text(file, tables.csv_text(name, blocks))
    else:
        tables.write_parquet(name, blocks, file)


def _document(trial: StoredTrial) -> dict[str, Any]:
    document = flat(trial)
    del document["failed"]  # their number is told
    return trial.metric.metric.document({**document, "state": state_of(trial), "end": trial.end})


def _cells(trial: StoredTrial, metric: Metric, title: str) -> Row:
    fork = trial.fork
    accuracy = None if trial.result.diverged else trial.result.converged_accuracy
    conditions = conditions_text(*values_of(trial.under))
    return [
        ("run", trial.origin.source or f"{trial.origin.study} {trial.origin.trial_number}"),
        ("workers", workers_text(trial.job.workers, trial.job.simulated_cluster)),
        ("candidate", _candidate(trial.candidate_percent, trial.switch_percent)),
        ("speculative", "yes" if trial.speculative else NONE),
        ("from", f"{fork.trial_number} at {fork.percent:g} %" if fork else NONE),
        ("end", trial.end or state_of(trial)),
        (title, named_text(accuracy_text(accuracy, metric), metric, title)),
        ("seconds", value_text(trial.times.training_seconds, ".1f")),
        ("under", conditions or NONE),
    ]


def _candidate(candidate_percent: float | None, switch_percent: float) -> str:
    """The switch point that a run counts for, and where it switched if that differs."""
    if candidate_percent == switch_percent:
        return f"{candidate_percent:g} %"
    counts_for = "none" if candidate_percent is None else f"{candidate_percent:g} %"
    return f"{counts_for} (at {switch_percent:g} %)"


def _print_events(database: Database, choice: TrialChoice, nothing: str) -> None:
    newest, rest = newest_of(chain.from_iterable(database.row_blocks(run_rows.events(choice))))
    if not newest:
        echo(nothing)
    for position, (_, rows) in enumerate(groupby(newest, key=lambda row: row.trial_id)):
        first, *others = rows
        conditions = conditions_text(first.online, first.switch_mechanism, first.injections)
        echo(
            "\n" * bool(position)
            + f"{first.study} {first.trial_number}, {first.workload}, {first.switch_percent:g} %"
            + (f" [{conditions}]" if conditions else "")
        )
        cells = [
            [
                ("event", row.kind),
                ("worker", value_text(row.worker, "d")),
                ("step", str(row.worker_step)),
                ("seconds", f"{row.elapsed_seconds:.1f}"),
                ("took", NONE if row.seconds is None else f"{row.seconds:.2f} s"),
                ("reason", row.reason),
            ]
            for row in (first, *others)
        ]
        print_rows(cells, {"worker", "took"}, prose="reason")
    if rest:
        echo(rest)


@click.command()
@optional_workload
@common_options
def switch_points(reference: str | None, storage_url: str, as_json: bool) -> None:
    """Show accuracy and time of each switch point of WORKLOAD, or of all.

    The figures cover all completed runs of searches, and imported runs that count for a switch
    point. The mean accuracy has its 95 % confidence interval beside it; diverged runs are counted,
    but are not in the means. A run that was stopped early counts with its accuracy at that point
    and the time that the whole run would have taken. Runs with an online policy, a switch by
    restart or injections have their own tables.
    """
    with open_database(storage_url, create=False) as database:
        points = switch_point_statistics(database, workload=selector_of(reference))
        registry = PolicyRegistry(database)
        names = dict.fromkeys(point.job.fingerprint for point in points)
        known = {name: registry.workload(name) for name in names}
    jobs = {name: workload.job for name, workload in known.items() if workload is not None}
    if as_json:
        print_json([point.metric.metric.document(flat(point)) for point in points])
    elif not points:
        echo(nothing_found(reference, "completed run"))
    else:
        _print_switch_points(points, jobs)


def _print_switch_points(points: list[SwitchPointStatistics], jobs: Mapping[str, Job]) -> None:
    def shared(point: SwitchPointStatistics) -> tuple[str, Protocols, str]:
        conditions = conditions_text(*values_of(point.under))
        return point.job.fingerprint, nested(Protocols, flat(point)), conditions

    for number, ((fingerprint, protocols, conditions), group) in enumerate(
        groupby(points, key=shared)
    ):
        first, *others = group
        echo(
            "\n"
            * bool(number)
            + f"{first.job.workload}, {ScheduledJob(jobs[fingerprint], protocols).cluster}"
            f" [{fingerprint[:12]}]" + (f", {conditions}" if conditions else "")
        )
        print_rows([_switch_point_cells(point) for point in (first, *others)], {"stopped"})


def _switch_point_cells(point: SwitchPointStatistics) -> Row:
    accuracy = accuracy_interval(
        point.mean_accuracy, point.lower_accuracy, point.upper_accuracy, point.metric.metric
    )
    share = None if point.speed_up is None else 1 / point.speed_up
    return [
        ("switch at", switch_text(point.candidate_percent, point.job.first_protocol)),
        ("runs", str(point.runs)),
        ("diverged", str(point.diverged_runs or NONE)),
        ("stopped", str(point.stopped_runs or NONE)),
        (point.metric.name, accuracy),
        ("seconds", value_text(point.mean_training_seconds, ".1f")),
        (
            f"time / {'BSP' if point.job.first_protocol == 'bsp' else 'first'}",
            value_text(share, ".2f"),
        ),
    ]
