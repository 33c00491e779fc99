"""What `status` draws: pure, from the status of searches to what rich prints."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from syncswitch.searcher.learning.words import uses_text
from syncswitch.searcher.search.policy_words import kept_text, sure_text
from syncswitch.searcher.status.summary import SearchStatus
from syncswitch.searcher.status.switch_point_status import SwitchPointStatus
from syncswitch.searcher.status.trial_status import RunStatus
from syncswitch.searcher.words import (
    NONE,
    accuracy_text,
    counted,
    run_conditions_text,
    workers_text,
)
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialState

_LEAST_PROBABILITY = 0.005
_VERDICTS = {True: "keeps it", False: "too early", None: "open"}
_BLANK = Text()


def overview(
    watched: Sequence[SearchStatus], others: Sequence[SearchStatus], note: str = ""
) -> Group:
    """Some searches in full, the others in one line each, the most important first.

    Where there is no room, the end is cut off. The note says, for example, why nothing new can be
    read.
    """
    parts: list[RenderableType] = [Text(note, style="yellow"), _BLANK] if note else []
    for search in watched:
        parts += [_details(search), _BLANK]
    return Group(*parts, *([_search_table(others)] if others else []))


def _details(search: SearchStatus) -> Group:
    """All that is known of a search."""
    parts: list[RenderableType] = [_heading(search)]
    if search.in_flight:
        parts += [_BLANK, _run_table(search)]
    parts += [_BLANK, _outlook(search)]
    if search.switch_points:
        parts += [_BLANK, _switch_point_table(search)]
    if search.last_failure:
        parts += [_BLANK, Text(f"last failure: {search.last_failure}", style="red")]
    return Group(*parts)


def _heading(search: SearchStatus) -> Text:
    """What is searched for, how far it is, in two or three lines."""
    workers = workers_text(search.workers, search.simulated_cluster)
    pair = f"{search.first_protocol},{search.second_protocol}"
    under = run_conditions_text(search.conditions)
    text = Text(f"{search.workload}, {workers} workers, {pair}", style="bold")
    metric = search.decided_by
    text.append("" if metric == Metric() else f", by {metric.axis_title}", "not bold")
    text.append(f", {under}" if under else "", "not bold")
    text.append(f"\n{search.strategy}, {_state(search)}: {_counts(search)}", "not bold")
    text.append(f"\n{_answer(search)}", "not bold")
    return text


def _state(search: SearchStatus) -> str:
    is_stale = any(run.state == TrialState.STALE for run in search.in_flight)
    if search.state == "stopped" and search.is_under_way and not is_stale:
        return "between two runs"
    return search.state


def _counts(search: SearchStatus) -> str:
    runs = counted(search.finished_runs, "run")
    if search.most_runs:
        runs = f"{search.finished_runs} of at most {counted(search.most_runs, 'run')}"
    more = (
        ("stale or failed", search.failed_runs),
        ("interrupted", search.interrupted_runs),
        ("speculative", search.speculative_runs),
        ("cancelled", search.cancelled_runs),
    )
    return ", ".join([runs, *(f"{number} {what}" for what, number in more if number)])


def _answer(search: SearchStatus) -> str:
    policy = search.policy
    if policy is not None:
        promised = _promised(policy)
        done = f"\n{uses_text(search.uses)}" if search.uses and search.uses.uses else ""
        return f"switch at {policy.switch_percent:g} % (version {policy.version}{promised}){done}"
    if search.dropped is not None:
        return search.dropped
    metric, target = search.decided_by, search.target_accuracy
    known = "not measured yet" if target is None else metric.text(target)
    threshold = metric.with_unit(f"{search.threshold:g}")
    accuracy = f"target {metric.name} {known}, threshold {threshold}"
    if search.lower_percent is None:
        return accuracy
    return f"switch between {search.lower_percent:g} and {search.upper_percent:g} %; {accuracy}"


def _promised(policy: TimingPolicy) -> str:
    """What may be expected of the answer, as far as it says."""
    if policy.reason is not None:
        return f"; {policy.reason}"
    if policy.kept_share is not None:
        return f"; kept in {kept_text(policy)}"
    return "" if policy.confidence is None else f"; {sure_text(policy.confidence)}"


def _outlook(search: SearchStatus) -> Text:
    """What it cost, and what is to come."""
    trainings = f" {search.first_protocol.upper()} trainings"
    spent = "cost so far unknown"
    if search.cost is not None:
        spent = f"cost so far {search.cost:.1f}{trainings}"
    if search.wall_seconds:
        spent += f", in {_duration(search.wall_seconds)}"
    rest, to_come = search.rest, ""
    if rest is not None:
        to_come = (
            f"\nstill to come about {rest.cost:.1f} ({rest.low_cost:.1f} to {rest.high_cost:.1f})"
            f" in {counted(round(rest.runs), 'run')}"
        )
        if search.remaining_wall_seconds is not None:
            to_come += f", about {_duration(search.remaining_wall_seconds)}"
    elif search.state == "running" and search.open_percent is not None and not search.most_runs:
        to_come = "\nwhat is still to come is known after three runs"
    return Text(spent + to_come)


def _run_table(search: SearchStatus) -> Table:
    """The runs under way, how far each is, and who makes it."""
    table = _table(
        "under way", "done", search.decided_by.name, "left", "made by", words={"made by"}
    )
    for run in search.in_flight:
        share = run.worker_steps / run.total_worker_steps
        left = run.remaining_seconds
        table.add_row(
            f"{run.switch_percent:g} %, run {run.replicate + 1}",
            f"{_bar(share, 10)} {_percent(share)}",
            accuracy_text(run.accuracy, search.decided_by),
            "-" if left is None else _duration(left),
            Text(_maker(run), no_wrap=True, overflow="ellipsis"),
            style="red" if run.state == TrialState.STALE else None,
        )
    return table


def _maker(run: RunStatus) -> str:
    who = f"{run.host}:{run.process_id}"
    if run.state == TrialState.STALE:
        return f"stale: {who} is dead"
    return f"{who}, speculative" if run.speculative else who


def _switch_point_table(search: SearchStatus) -> Table:
    """What was measured at each switch point, and what is believed of it."""
    metric = search.decided_by
    has_answers = any(one.answer_probability is not None for one in search.switch_points)
    columns = ["switch at", "runs", metric.name, "spread", "verdict"]
    table = _table(*columns, *(["the answer?"] if has_answers else []), words={"the answer?"})
    for one in filter(_is_of_interest, search.switch_points):
        is_baseline, probability = one.switch_percent == 100, one.answer_probability or 0.0
        spread = one.standard_deviation
        cells = [
            f"{one.switch_percent:g} %" + (f" ({search.first_protocol.upper()})" * is_baseline),
            f"{one.runs}" + (f" + {one.in_flight_runs}" if one.in_flight_runs else ""),
            f"{one.diverged_runs} diverged"
            if one.diverged_runs
            else accuracy_text(one.mean_accuracy, metric),
            NONE if spread is None or one.diverged_runs else metric.amount(spread),
            "target" if is_baseline else _VERDICTS[one.accepted],
            *([f"{_percent(probability)} {_bar(probability, 12, rest='')}"] if has_answers else []),
        ]
        is_open = one.switch_percent == search.open_percent
        table.add_row(*cells, style="bold" if is_open else None)
    return table


def _is_of_interest(one: SwitchPointStatus) -> bool:
    was_tried = one.runs or one.in_flight_runs
    return bool(was_tried) or (one.answer_probability or 0.0) >= _LEAST_PROBABILITY


def _search_table(searches: Sequence[SearchStatus]) -> Table:
    """A line for each search."""
    rows = [_search_cells(search) for search in searches]
    optional = {
        "workers": any(search.simulated_cluster for search in searches),
        "used": any(search.uses and search.uses.uses for search in searches),
        "under": any(run_conditions_text(search.conditions) for search in searches),
    }
    columns = [name for name in rows[0] if optional.get(name, True)]
    table = _table(*columns, words={"under"}, lines=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table


def _search_cells(search: SearchStatus) -> dict[str, str]:
    of = f" of {search.most_runs}" if search.most_runs else ""
    answer = "-"
    if search.policy is not None:
        answer = f"{search.policy.switch_percent:g} % (version {search.policy.version})"
    elif search.lower_percent is not None:
        answer = f"{search.lower_percent:g} to {search.upper_percent:g} %"
    return {
        "search": search.study,
        "workers": workers_text(search.workers, search.simulated_cluster),
        "state": search.state,
        "runs": f"{search.finished_runs}{of}",
        "under way": str(sum(run.state == TrialState.RUNNING for run in search.in_flight)),
        "failed": str(search.failed_runs),
        "switch at": answer,
        "used": f"{search.uses.uses} ({search.uses.kept} kept)" if search.uses else "-",
        "under": run_conditions_text(search.conditions) or "-",
    }


def _table(*columns: str, words: Collection[str], lines: box.Box | None = None) -> Table:
    """The first column is left-aligned, and those with words, which give way where it is narrow."""
    table = Table(
        box=lines, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0), header_style="dim"
    )
    for position, name in enumerate(columns):
        is_left = position == 0 or name in words
        is_tight = lines is None and name not in words
        table.add_column(
            name, justify="left" if is_left else "right", overflow="fold", no_wrap=is_tight
        )
    return table


def _percent(share: float) -> str:
    """Of equal length, so that what stands before or after it is in line."""
    return f"{100 * share:3.0f} %"


def _bar(share: float, width: int, rest: str = "░") -> str:
    """A bar of so many characters, and what fills it up."""
    halves = round(2 * width * min(1.0, max(0.0, share)))
    full = "█" * (halves // 2) + "▌" * (halves % 2)
    return full + rest * (width - len(full))


def _duration(seconds: float) -> str:
    """For example `45 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
