"""`syncswitch-search settings`: what the runs of each setting measured together."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from typing import TYPE_CHECKING

import click

from syncswitch.searcher.cli.reference import nothing_found, optional_workload, selector_of
from syncswitch.searcher.text.sentences import accuracy_interval, conditions_text, workers_text
from syncswitch.trainers.cli.console import EXIT_OK, common_options, echo, print_json, print_table

if TYPE_CHECKING:
    from syncswitch.storage.queries.summaries import SettingStatistics

__all__ = ["settings"]


@click.command()
@optional_workload
@common_options
def settings(reference: str | None, storage_url: str, as_json: bool) -> int:
    """Shows accuracy and time of each setting, of WORKLOAD or of all.

    Over all completed runs of searches, and imported ones that count for a setting. Behind the
    accuracy is half of the 95 % confidence interval of the mean; diverged runs are counted, but
    are in no mean. A run that was stopped early has the accuracy that it had by then, and the time
    that all of it would have taken. Runs with an online policy, with a switch by restart, or with
    injections have a table of their own.
    """
    from syncswitch.storage.database.engine import open_database
    from syncswitch.storage.queries.summaries import setting_statistics

    with open_database(storage_url, create=False) as database:
        found = setting_statistics(database, workload=selector_of(reference))
    if as_json:
        print_json([dataclasses.asdict(setting) for setting in found])
    elif not found:
        echo(nothing_found(reference, "completed run"))
    else:
        _print_settings(found)
    return EXIT_OK


def _print_settings(found: list[SettingStatistics]) -> None:
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
        has_stopped = any(setting.stopped_runs for setting in of_workload)
        counts = ["runs", "diverged", *(["stopped"] if has_stopped else [])]
        print_table(
            ["switch at", *counts, "accuracy", "seconds", baseline],
            [_cells(setting, has_stopped) for setting in of_workload],
        )


def _shared(setting: SettingStatistics) -> tuple[str, str]:
    """What the settings of a table have in common."""
    conditions = conditions_text(setting.online, setting.switch_mechanism, setting.injections)
    return setting.fingerprint, conditions


def _cells(setting: SettingStatistics, has_stopped: bool) -> list[str]:
    is_baseline = setting.setting_percent == 100
    name = f" ({setting.first_protocol.upper()})" if is_baseline else ""
    seconds = setting.mean_training_seconds
    return [
        f"{setting.setting_percent:g} %{name}",
        str(setting.runs),
        str(setting.diverged_runs or "-"),
        *([str(setting.stopped_runs or "-")] if has_stopped else []),
        _accuracy(setting),
        "-" if seconds is None else f"{seconds:.1f}",
        "-" if setting.speed_up is None else f"{1 / setting.speed_up:.2f}",
    ]


def _accuracy(setting: SettingStatistics) -> str:
    if setting.mean_accuracy is None:
        return "-"
    return accuracy_interval(setting.mean_accuracy, setting.lower_accuracy, setting.upper_accuracy)
