"""`syncswitch-search status`: how far each search and evaluation is, live on a terminal."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import Any

import click
from rich.live import Live

from syncswitch.cli.console import echo, print_json, rich_console
from syncswitch.cli.options import FiniteRange, common_options, workers_option
from syncswitch.cli.search.views.reference import nothing_found, optional_workload, selector_of
from syncswitch.cli.search.views.status_view import overview
from syncswitch.searcher.learning.words import uses_as_json
from syncswitch.searcher.status.reader import StatusReader
from syncswitch.searcher.status.summary import SearchStatus
from syncswitch.storage.errors import SyncSwitchError
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.events import condition_values

_OF_POLICY = (
    "switch_percent",
    "guarded",
    "confidence",
    "kept_share",
    "delivered_share",
    "baseline_kept_share",
    "expected_time",
    "speed_up",
    "speed_up_low",
    "speed_up_high",
    "reason",
)


@click.command()
@optional_workload
@workers_option(None, "Only searches on this many workers.")
@click.option("--once", is_flag=True, help="Print it once, even on a terminal.")
@click.option(
    "--interval",
    "interval_seconds",
    metavar="SECONDS",
    type=FiniteRange(0.2, 3600),
    default=2.0,
    show_default=True,
    help="Time between two looks at the database, on a terminal.",
)
@common_options
def status(
    reference: str | None,
    workers: int | None,
    once: bool,
    interval_seconds: float,
    storage_url: str,
    as_json: bool,
) -> None:
    """Shows how far each search and evaluation is, of WORKLOAD or of all.

    Those under way, and the unfinished ones of a WORKLOAD, are shown in full: their runs and which
    process makes them, what is known of each switch point and how likely it is the answer, the cost
    so far and what is still to come. The others have a line each. What is still to come is
    estimated by simulating the rest of the search as a single searcher would make it; in eight
    cases of ten it lies in the range in brackets.

    On a terminal the view is refreshed until all is decided or you press Ctrl-C. It only reads the
    database; the searchers may be anywhere.

    --json prints a list of all searches: costs in trainings with the first protocol alone,
    probabilities from 0 to 1, and null for what is not known; `uses` is how its policy has done. A
    run in `in_flight` is `stale` if its process is dead.
    """
    reader = StatusReader(storage_url, selector_of(reference), workers)
    is_brief = not as_json and reference is None
    is_live = sys.stdout.isatty() and not once and not as_json
    searches = reader.read(with_rest=not is_live, is_brief=is_brief)
    if as_json:
        print_json([_document(search) for search in searches])
        return
    if not searches:
        what = "search" if workers is None else f"search on {workers} workers"
        echo(nothing_found(reference, what))
        return
    is_chosen = reference is not None
    watched = {search.study for search in searches if search.is_under_way}
    if is_chosen:
        unfinished = {search.study for search in searches if not search.is_finished}
        watched |= unfinished or {searches[-1].study}
    if is_live and any(search.is_under_way for search in searches):
        searches = _watch(reader, searches, watched, interval_seconds)
    rich_console().print(overview(*_parted(searches, watched)))


def _watch(
    reader: StatusReader,
    searches: list[SearchStatus],
    watched: set[str],
    interval_seconds: float,
) -> list[SearchStatus]:
    """Redraws until nothing is under way, or somebody presses Ctrl-C; gives what was seen last."""
    note = ""
    try:
        with Live(
            console=rich_console(),
            auto_refresh=False,
            transient=True,
            vertical_overflow="ellipsis",
        ) as live:
            while True:
                live.update(overview(*_parted(searches, watched), note), refresh=True)
                if not note and not any(search.is_under_way for search in searches):
                    return searches
                time.sleep(interval_seconds)
                try:
                    searches, note = reader.read(), ""
                    watched |= {search.study for search in searches if search.is_under_way}
                except SyncSwitchError as error:
                    # The database may come back; what was seen last stays.
                    note = f"not up to date: {error}"
    except KeyboardInterrupt:
        return searches


def _parted(
    searches: Sequence[SearchStatus], watched: set[str]
) -> tuple[list[SearchStatus], list[SearchStatus]]:
    """Those to be shown in full, and the others."""
    full = [search for search in searches if search.study in watched]
    return full, [search for search in searches if search.study not in watched]


def _document(search: SearchStatus) -> dict[str, Any]:
    """For programs."""
    policy, metric = search.policy, search.decided_by
    content = metric.with_values(dataclasses.asdict(search)) | metric.naming
    del content["conditions"], content["policy"], content["decided_by"]
    for rows in ("switch_points", "in_flight"):
        content[rows] = [metric.with_values(row) for row in content[rows]]
    content["uses"] = search.uses and uses_as_json(search.uses)
    return {
        **content,
        "policy_version": policy and policy.version,
        **{name: policy and getattr(policy, name) for name in _OF_POLICY},
        **condition_values(search.conditions),
        "in_flight_runs": sum(run.state == TrialState.RUNNING for run in search.in_flight),
    }
