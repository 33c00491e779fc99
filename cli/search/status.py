"""`syncswitch-search status`: the progress of searches and evaluations, live on a terminal."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from syncswitch.cli.console import Row, echo, print_json, rich_console, table_of
from syncswitch.cli.options import common_options, workers_option
from syncswitch.cli.search.rows import nothing_found, optional_workload, selector_of
from syncswitch.cli.words import in_options
from syncswitch.searcher.search.policy_words import (
    kept_text,
    probability_text,
    uses_as_json,
    uses_text,
)
from syncswitch.searcher.status import SearchStatus, StatusReader
from syncswitch.searcher.words import (
    NONE,
    accuracy_text,
    counted,
    duration_text,
    momentum_text,
    run_conditions_text,
    switch_text,
    trainings_text,
    workers_text,
)
from syncswitch.storage.columns import JobColumns
from syncswitch.storage.errors import SyncSwitchError
from syncswitch.storage.records.flat import columns, flat
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.values import condition_values
from syncswitch.storage.uses.summary import UseSummary

_INTERVAL_SECONDS = 1.0
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
@click.option("--once", is_flag=True, help="Print the state once, even on a terminal.")
@common_options
def status(
    reference: str | None, workers: int | None, once: bool, storage_url: str, as_json: bool
) -> None:
    """Show the progress of each search and sweep of WORKLOAD, or of all.

    Searches under way, and the unfinished ones of a WORKLOAD, are shown in full: their runs and the
    processes that make them, what is known of each switch point and how likely it is the answer,
    the cost so far and the cost to come. The others have a line each. The cost to come is estimated
    by simulating the rest of the search with a single searcher; in eight cases of ten it lies in
    the range in brackets.

    On a terminal the view is refreshed until all searches are finished or you press Ctrl-C. It only
    reads the database; the searchers may be anywhere.

    --json prints a list of all searches: costs in trainings with the first protocol alone,
    probabilities from 0 to 1, and null for unknown values; `uses` is how its policy has done. A run
    in `in_flight` is `stale` if its process is dead.
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
    watched = {search.info.study for search in searches if search.is_under_way}
    if is_chosen:
        unfinished = {search.info.study for search in searches if not search.is_finished}
        watched |= unfinished or {searches[-1].info.study}
    if is_live and any(search.is_under_way for search in searches):
        searches = _watch(reader, searches, watched)
    rich_console().print(overview(*_parted(searches, watched)))


def _watch(
    reader: StatusReader, searches: list[SearchStatus], watched: set[str]
) -> list[SearchStatus]:
    """Redraws until nothing is under way or the user presses Ctrl-C; returns the last state."""
    note = ""
    try:
        with Live(
            console=rich_console(), auto_refresh=False, transient=True, vertical_overflow="ellipsis"
        ) as live:
            while True:
                live.update(overview(*_parted(searches, watched), note), refresh=True)
                if not note and not any(search.is_under_way for search in searches):
                    return searches
                time.sleep(_INTERVAL_SECONDS)
                try:
                    searches, note = reader.read(), ""
                    watched |= {search.info.study for search in searches if search.is_under_way}
                except SyncSwitchError as error:
                    # The database may come back; until then the last state stays.
                    note = f"not up to date: {in_options(error)}"
    except KeyboardInterrupt:
        return searches


def _parted(
    searches: Sequence[SearchStatus], watched: set[str]
) -> tuple[list[SearchStatus], list[SearchStatus]]:
    full = [search for search in searches if search.info.study in watched]
    return full, [search for search in searches if search.info.study not in watched]


def _document(search: SearchStatus) -> dict[str, Any]:
    policy, metric, info, job = search.policy, search.job.metric, search.info, search.job
    stated = {**flat(policy), "speed_up": policy.measured.speed_up} if policy else {}
    of_job = {**flat(job), **flat(job.job.key), "workload": _workload(search)}
    parts = (search.runs, search.bracket, search.spending)
    content = {
        **{column.name: of_job[column.name] for column in columns(JobColumns)},
        **{name: getattr(info, name) for name in ("study", "strategy", "threshold", "dropped")},
        **{name: getattr(search, name) for name in ("state", "is_under_way", "last_failure")},
        **{name: value for part in parts for name, value in dataclasses.asdict(part).items()},
        "uses": search.uses and uses_as_json(search.uses),
        "switch_points": list(map(dataclasses.asdict, search.switch_points)),
        "in_flight": list(map(dataclasses.asdict, search.in_flight)),
    }
    return {
        **metric.document(content),
        **metric.naming,
        "policy_version": policy and policy.version,
        **{name: stated.get(name) for name in _OF_POLICY},
        **condition_values(search.conditions),
        "in_flight_runs": sum(run.state == TrialState.RUNNING for run in search.in_flight),
    }


def _workload(search: SearchStatus) -> str:
    """The name of the job, as it was when its policy was published."""
    return search.job.name if search.policy is None else search.policy.job.workload


_LEAST_PROBABILITY = 0.005
_VERDICTS = {True: "keeps it", False: "too early", None: "open"}
_BLANK = Text()


def overview(
    watched: Sequence[SearchStatus], others: Sequence[SearchStatus], note: str = ""
) -> Group:
    """Some searches in full, then the others in one line each.

    A small terminal cuts off the end. The note says, for example, why the view is out of date.
    """
    parts: list[RenderableType] = [Text(note, style="yellow"), _BLANK] if note else []
    for search in watched:
        parts += [_details(search), _BLANK]
    if others:
        rows = [_search_cells(search) for search in others]
        if not any(search.job.simulated_cluster for search in others):
            rows = [[cell for cell in row if cell[0] != "workers"] for row in rows]
        if len({search.job.momentum_after_switch for search in others}) < 2:
            rows = [[cell for cell in row if cell[0] != "momentum"] for row in rows]
        parts.append(table_of(rows, {"used", "under"}, prose="under"))
    return Group(*parts)


def _details(search: SearchStatus) -> Group:
    metric = search.job.metric
    heading = Text(f"{_workload(search)}, {search.job.cluster}", style="bold")
    under, rule = run_conditions_text(search.conditions), search.job.momentum_after_switch
    heading.append(f", {momentum_text(rule)}" if rule else "", "not bold")
    heading.append("" if metric == Metric() else f", by {metric.axis_title}", "not bold")
    heading.append(f", {under}" if under else "", "not bold")
    is_stale = any(run.state == TrialState.STALE for run in search.in_flight)
    is_between = search.state == "stopped" and search.is_under_way and not is_stale
    state = "between two runs" if is_between else search.state
    heading.append(f"\n{search.info.strategy}, {state}: {_counts(search)}", "not bold")
    heading.append(f"\n{_answer(search)}", "not bold")
    parts: list[RenderableType] = [heading]
    if search.in_flight:
        parts += [_BLANK, _run_table(search)]
    parts += [_BLANK, _outlook(search)]
    if search.switch_points:
        parts += [_BLANK, _switch_point_table(search)]
    if search.last_failure:
        parts += [_BLANK, Text(f"last failure: {search.last_failure}", style="red")]
    return Group(*parts)


def _counts(search: SearchStatus) -> str:
    made = search.runs
    runs = counted(made.finished_runs, "run")
    if made.most_runs:
        runs = f"{made.finished_runs} of at most {counted(made.most_runs, 'run')}"
    more = (
        ("stale or failed", made.failed_runs),
        ("interrupted", made.interrupted_runs),
        ("speculative", made.speculative_runs),
        ("cancelled", made.cancelled_runs),
    )
    return ", ".join([runs, *(f"{number} {what}" for what, number in more if number)])


def _answer(search: SearchStatus) -> str:
    policy = search.policy
    if policy is not None:
        promised = _promised(policy)
        done = f"\n{uses_text(search.uses)}" if search.uses and search.uses.uses else ""
        return f"switch at {policy.switch_percent:g} %, version {policy.version}{promised}{done}"
    if search.job.pair in search.info.dropped:
        return search.info.dropped[search.job.pair]
    metric, bracket, beta = search.job.metric, search.bracket, search.info.threshold
    target = bracket.target_accuracy
    shown = "not measured yet" if target is None else metric.text(target)
    threshold = metric.with_unit(f"{beta:g}") if beta else "not measured yet"
    accuracy = f"target {metric.name} {shown}, threshold {threshold}"
    if bracket.lower_percent is None:
        return accuracy
    return f"switch between {bracket.lower_percent:g} and {bracket.upper_percent:g} %; {accuracy}"


def _promised(policy: TimingPolicy) -> str:
    if policy.promise.reason is not None:
        return f"; {policy.promise.reason}"
    if policy.promise.kept_share is not None:
        return f"; kept in {kept_text(policy)}"
    sure = policy.promise.confidence
    return "" if sure is None else f"; {probability_text(sure)} sure"


def _outlook(search: SearchStatus) -> Text:
    spent, spending, rest = "cost so far unknown", search.spending, search.spending.rest
    if spending.cost is not None:
        spent = f"cost so far {trainings_text(spending.cost, search.job.first_protocol)}"
    if spending.wall_seconds:
        spent += f", in {duration_text(spending.wall_seconds)}"
    is_open, to_come = search.bracket.open_percent is not None, ""
    if rest is not None:
        to_come = (
            f"\nstill to come about {rest.cost:.1f} ({rest.low_cost:.1f} to {rest.high_cost:.1f})"
            f" in {counted(round(rest.runs), 'run')}"
        )
        if spending.remaining_wall_seconds is not None:
            to_come += f", about {duration_text(spending.remaining_wall_seconds)}"
    elif search.state == "running" and is_open and not search.runs.most_runs:
        to_come = "\nthe cost to come is estimated after three runs"
    return Text(spent + to_come)


def _run_table(search: SearchStatus) -> Table:
    metric = search.job.metric
    table = _table("under way", "done", metric.name, "left", "made by", words="made by")
    for run in search.in_flight:
        share = run.worker_steps / run.total_worker_steps
        left, is_stale = run.remaining_seconds, run.state == TrialState.STALE
        who = f"{run.host}:{run.process_id}"
        maker = f"{who}, speculative" if run.speculative else who
        table.add_row(
            f"{run.switch_percent:g} %, run {run.replicate + 1}",
            f"{_bar(share, 10)} {_percent(share)}",
            accuracy_text(run.accuracy, metric),
            "-" if left is None else duration_text(left),
            Text(f"stale: {who} is dead" if is_stale else maker, no_wrap=True, overflow="ellipsis"),
            style="red" if is_stale else None,
        )
    return table


def _switch_point_table(search: SearchStatus) -> Table:
    metric = search.job.metric
    has_answers = any(point.answer_probability is not None for point in search.switch_points)
    columns = ["switch at", "runs", metric.name, "spread", "verdict"]
    table = _table(*columns, *(["the answer?"] if has_answers else []), words="the answer?")
    for point in search.switch_points:
        is_baseline, probability = point.switch_percent == 100, point.answer_probability or 0.0
        if not (point.runs or point.in_flight_runs) and probability < _LEAST_PROBABILITY:
            continue
        spread = point.standard_deviation
        cells = [
            switch_text(point.switch_percent, search.job.first_protocol),
            f"{point.runs}" + (f" + {point.in_flight_runs}" if point.in_flight_runs else ""),
            f"{point.diverged_runs} diverged"
            if point.diverged_runs
            else accuracy_text(point.mean_accuracy, metric),
            NONE if spread is None or point.diverged_runs else metric.amount(spread),
            "target" if is_baseline else _VERDICTS[point.accepted],
            *([f"{_percent(probability)} {_bar(probability, 12, rest='')}"] if has_answers else []),
        ]
        is_open = point.switch_percent == search.bracket.open_percent
        table.add_row(*cells, style="bold" if is_open else None)
    return table


def _search_cells(search: SearchStatus) -> Row:
    of = f" of {search.runs.most_runs}" if search.runs.most_runs else ""
    answer, uses = "-", search.uses
    if search.policy is not None:
        answer = f"{search.policy.switch_percent:g} % (version {search.policy.version})"
    elif search.bracket.lower_percent is not None:
        answer = f"{search.bracket.lower_percent:g} to {search.bracket.upper_percent:g} %"
    return [
        ("search", search.info.study),
        ("workers", workers_text(search.job.workers, search.job.simulated_cluster)),
        ("momentum", search.job.momentum_after_switch or NONE),
        ("state", search.state),
        ("runs", f"{search.runs.finished_runs}{of}"),
        ("under way", str(sum(run.state == TrialState.RUNNING for run in search.in_flight))),
        ("failed", str(search.runs.failed_runs)),
        ("switch at", answer),
        ("used", _used(uses)),
        ("under", run_conditions_text(search.conditions) or "-"),
    ]


def _used(uses: UseSummary | None) -> str:
    if uses is None or not uses.uses:
        return "-"
    return f"{uses.uses} ({'not judged' if uses.kept is None else f'{uses.kept} kept'})"


def _table(*columns: str, words: str) -> Table:
    """A table without lines; its first column and `words`, which shrinks, are left-aligned."""
    table = Table(
        box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0), header_style="dim"
    )
    for position, name in enumerate(columns):
        is_left = position == 0 or name == words
        table.add_column(
            name, justify="left" if is_left else "right", overflow="fold", no_wrap=name != words
        )
    return table


def _percent(share: float) -> str:
    return f"{100 * share:3.0f} %"


def _bar(share: float, width: int, rest: str = "░") -> str:
    """A bar of `width` characters, filled up with `rest`."""
    halves = round(2 * width * min(1.0, max(0.0, share)))
    full = "█" * (halves // 2) + "▌" * (halves % 2)
    return full + rest * (width - len(full))
