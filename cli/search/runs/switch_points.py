"""`syncswitch-search switch-points`: what the runs of each switch point measured together."""

from __future__ import annotations

import dataclasses
from itertools import groupby

import click

from syncswitch.cli.console import echo, print_json, print_table
from syncswitch.cli.options import common_options
from syncswitch.cli.search.rows import nothing_found, optional_workload, selector_of
from syncswitch.searcher.words import accuracy_interval, conditions_text, workers_text
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.queries.summaries import SwitchPointStatistics, switch_point_statistics
from syncswitch.storage.records.metric import Metric


@click.command()
@optional_workload
@common_options
def switch_points(reference: str | None, storage_url: str, as_json: bool) -> None:
    """Show accuracy and time of each switch point of WORKLOAD, or of all.

    Over all completed runs of searches, and imported ones that count for a switch point. Beside the
    mean accuracy is half of its 95 % confidence interval; diverged runs are counted, but are in no
    mean. A run that was stopped early counts with the accuracy it had by then and the time that all
    of it would have taken. Runs with an online policy, with a switch by restart or with injections
    have a table of their own.
    """
    with open_database(storage_url, create=False) as database:
        found = switch_point_statistics(database, workload=selector_of(reference))
    if as_json:
        print_json([dataclasses.asdict(switch_point) for switch_point in found])
    elif not found:
        echo(nothing_found(reference, "completed run"))
    else:
        _print_switch_points(found)


def _print_switch_points(found: list[SwitchPointStatistics]) -> None:
    """One table per workload, cluster and conditions."""
    is_first = True
    for (fingerprint, conditions), group in groupby(found, key=_shared):
        of_workload = list(group)
        one = of_workload[0]
        if not is_first:
            echo()
        is_first = False
        echo(
            f"{one.workload}, {workers_text(one.workers, one.simulated_cluster)} workers,"
            f" {one.first_protocol},{one.second_protocol} [{fingerprint[:12]}]"
            + (f", {conditions}" if conditions else "")
        )
        baseline = "time / BSP" if one.first_protocol == "bsp" else "time / first"
        has_stopped = any(switch_point.stopped_runs for switch_point in of_workload)
        counts = ["runs", "diverged", *(["stopped"] if has_stopped else [])]
        print_table(
            ["switch at", *counts, one.metric, "seconds", baseline],
            [_cells(switch_point, has_stopped) for switch_point in of_workload],
        )


def _shared(switch_point: SwitchPointStatistics) -> tuple[str, str]:
    """What the switch points of a table have in common."""
    conditions = conditions_text(
        switch_point.online,
        switch_point.switch_mechanism,
        switch_point.injections,
    )
    return switch_point.fingerprint, conditions


def _cells(switch_point: SwitchPointStatistics, has_stopped: bool) -> list[str]:
    is_baseline = switch_point.candidate_percent == 100
    name = f" ({switch_point.first_protocol.upper()})" if is_baseline else ""
    seconds = switch_point.mean_training_seconds
    return [
        f"{switch_point.candidate_percent:g} %{name}",
        str(switch_point.runs),
        str(switch_point.diverged_runs or "-"),
        *([str(switch_point.stopped_runs or "-")] if has_stopped else []),
        accuracy_interval(
            switch_point.mean_accuracy,
            switch_point.lower_accuracy,
            switch_point.upper_accuracy,
            Metric(switch_point.metric, switch_point.metric_goal, switch_point.metric_unit),
        ),
        "-" if seconds is None else f"{seconds:.1f}",
        "-" if switch_point.speed_up is None else f"{1 / switch_point.speed_up:.2f}",
    ]
