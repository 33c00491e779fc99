"""What `status` draws: pure, from the status of searches to what rich prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from syncswitch.searcher.status.summary import SearchStatus
from syncswitch.searcher.status.switch_point_status import SwitchPointStatus
from syncswitch.searcher.status.trial_status import RunStatus
from syncswitch.searcher.text.sentences import conditions_text, kept_words, workers_text
from syncswitch.storage.trials.events import condition_values

# Below these widths a table does without some of its columns.
_WIDE, _USUAL = 100, 72
_LEAST_PROBABILITY = 0.005
_VERDICTS = {True: "keeps it", False: "too early", None: "open"}
_BAR, _HALF_BAR = "█", "▌"


class Screen:
    """As much of some searches as a terminal has room for, the most important first.

    Args:
        watched: In full, as far as there is room.
        others: In one line each.
        note: A line at the end, such as why nothing new can be read.
    """

    def __init__(
        self, watched: Sequence[SearchStatus], others: Sequence[SearchStatus], note: str = ""
    ) -> None:
        self._watched = watched
        self._others = others
        self._note = note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Leaves out what does not fit."""
        room = (options.height or console.height) - (1 if self._note else 0)
        flowing = options.update(height=None)
        parts = list(self._parts(options.max_width))
        drawn = [console.render_lines(part, flowing, pad=False) for _, part in parts]
        kept: set[int] = set()
        # A part that does not fit leaves its room to smaller ones.
        for index in sorted(range(len(parts)), key=lambda index: parts[index][0]):
            if len(drawn[index]) <= room:
                room -= len(drawn[index])
                kept.add(index)
        for index in sorted(kept):
            for line in drawn[index]:
                yield from line
                yield Segment.line()
        if len(kept) < len(parts) and room > 0:
            yield Text("(more in a larger window)", style="dim", no_wrap=True)
        if self._note:
            yield Text(self._note, style="yellow", no_wrap=True, overflow="ellipsis")

    def _parts(self, width: int) -> Iterator[tuple[tuple[int, int], RenderableType]]:
        """Each with its importance, the smallest first; in the order in which they are shown."""
        for place, search in enumerate(self._watched):
            for importance, part in _ranked(search, width):
                yield (importance, place), _Spaced(part, 1 if place or importance else 0)
        if self._others:
            yield (9, 0), _Spaced(search_table(self._others), 1)


class _Spaced:
    """A part, below so many empty lines."""

    def __init__(self, part: RenderableType, lines: int) -> None:
        self._part = part
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from [Text("")] * self._lines
        yield self._part


def details(search: SearchStatus, width: int) -> Iterator[RenderableType]:
    """All that is known of a search, part by part."""
    return (part for _, part in _ranked(search, width))


def _ranked(search: SearchStatus, width: int) -> Iterator[tuple[int, RenderableType]]:
    """The parts of a search in the order in which they are shown, each with its importance."""
    yield 0, _heading(search)
    if search.in_flight:
        yield 1, _run_table(search, width)
    yield 2, _outlook(search)
    if search.switch_points:
        yield 3, _switch_point_table(search, width)
    if search.last_failure:
        yield 4, _plain(f"last failure: {search.last_failure}", "red")


def _heading(search: SearchStatus) -> Text:
    """What is searched for, how far it is, in two or three lines."""
    workers = workers_text(search.workers, search.simulated_cluster)
    pair = f"{search.first_protocol},{search.second_protocol}"
    job = f"{search.workload}, {workers} workers, {pair}"
    under = _conditions(search)
    text = Text()
    text.append(job, style="bold")
    text.append("" if search.metric == "accuracy" else f", accuracy is {search.metric}")
    text.append(f", {under}" if under else "")
    text.append(f"\n{search.strategy}, {_state(search)}: {_counts(search)}")
    text.append(f"\n{_answer(search)}")
    return text


def _state(search: SearchStatus) -> str:
    is_lost = any(run.state == "lost" for run in search.in_flight)
    if search.state == "stopped" and search.is_under_way and not is_lost:
        return "between two runs"
    return search.state


def _counts(search: SearchStatus) -> str:
    of = f" of at most {search.most_runs}" if search.most_runs else ""
    more = (
        ("lost or failed", search.failed_runs),
        ("interrupted", search.interrupted_runs),
        ("made in advance", search.speculative_runs),
        ("cancelled", search.cancelled_runs),
    )
    named = _runs(search.most_runs or search.finished_runs)
    words = [f"{search.finished_runs}{of} {named}", *(f"{n} {what}" for what, n in more if n)]
    return ", ".join(words)


def _runs(number: int) -> str:
    return "run" if number == 1 else "runs"


def _answer(search: SearchStatus) -> str:
    target = search.target_accuracy
    known = "not measured yet" if target is None else f"{target:.4f}"
    accuracy = f"target {known}, of which {search.threshold:g} may be lost"
    if search.switch_percent is not None:
        promised = _promised(search)
        return f"switch at {search.switch_percent:g} % (version {search.policy_version}{promised})"
    if search.lower_percent is None:
        return accuracy
    return f"switch between {search.lower_percent:g} and {search.upper_percent:g} %; {accuracy}"


def _promised(search: SearchStatus) -> str:
    """What may be expected of the answer, as far as it says."""
    if search.reason is not None:
        return f"; {search.reason}"
    if search.kept_share is not None:
        shares = (search.kept_share, search.baseline_kept_share)
        return f"; kept in {kept_words(*shares, search.first_protocol)}"
    if search.confidence is not None:
        return f"; {100 * search.confidence:.0f} % sure"
    return ""


def _outlook(search: SearchStatus) -> Text:
    """What it cost, and what is to come."""
    first = search.first_protocol.upper()
    paid = "unknown" if search.cost is None else f"{search.cost:.1f} {first} trainings"
    lines = [f"cost so far {paid}"]
    if search.wall_seconds:
        lines[0] += f", in {_duration(search.wall_seconds)}"
    rest = search.rest
    if rest is not None:
        lines.append(
            f"to come about {rest.cost:.1f} ({rest.low_cost:.1f} to {rest.high_cost:.1f}) in"
            f" {rest.runs:.0f} {_runs(round(rest.runs))}"
        )
        if search.remaining_wall_seconds is not None:
            lines[-1] += f", about {_duration(search.remaining_wall_seconds)}"
    elif search.state == "running" and search.open_percent is not None and not search.most_runs:
        lines.append("what is to come can be said after three runs")
    return _plain("\n".join(lines))


def _run_table(search: SearchStatus, width: int) -> Table:
    """The runs under way, how far each is, and who makes it."""
    table = _table()
    table.add_column("under way", no_wrap=True)
    table.add_column("done", justify="right", no_wrap=True)
    table.add_column("accuracy", justify="right", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True)
    if width >= _WIDE:
        table.add_column("worker-steps", justify="right", no_wrap=True)
    if width >= _USUAL:
        # The one that gives way where there is little room.
        table.add_column("made by", no_wrap=False)
    for run in search.in_flight:
        share = run.worker_steps / run.total_worker_steps
        cells: list[RenderableType] = [
            f"{run.switch_percent:g} %, run {run.replicate + 1}",
            f"{_bar(share, 10)} {_percent(share)}" if width >= _USUAL else _percent(share),
            "-" if run.accuracy is None else f"{run.accuracy:.4f}",
            "-" if run.remaining_seconds is None else _duration(run.remaining_seconds),
        ]
        if width >= _WIDE:
            cells.append(f"{run.worker_steps:,} of {run.total_worker_steps:,}")
        if width >= _USUAL:
            cells.append(Text(_maker(run), no_wrap=True, overflow="ellipsis"))
        elif run.state == "lost":
            cells[-1] = "lost"
        table.add_row(*cells, style="red" if run.state == "lost" else None)
    return table


def _maker(run: RunStatus) -> str:
    who = f"{run.host}:{run.process_id}"
    if run.state == "lost":
        return f"{who}, which is dead"
    return f"{who}, in advance" if run.speculative else who


def _switch_point_table(search: SearchStatus, width: int) -> Table:
    """What was measured at each switch point, and what is believed of it."""
    settings = [
        switch_point for switch_point in search.switch_points if _is_of_interest(switch_point)
    ]
    has_answers = any(switch_point.answer_probability is not None for switch_point in settings)
    table = _table()
    table.add_column("switch at", no_wrap=True)
    table.add_column("runs", justify="right", no_wrap=True)
    table.add_column("accuracy", justify="right", no_wrap=True)
    if width >= _USUAL:
        table.add_column("spread", justify="right", no_wrap=True)
    table.add_column("verdict", justify="right", no_wrap=True)
    if has_answers:
        table.add_column("the answer?", no_wrap=True)
    for switch_point in settings:
        cells = [
            _switch_point_name(switch_point, search),
            _run_count(switch_point),
            _accuracy(switch_point),
        ]
        if width >= _USUAL:
            spread = switch_point.standard_deviation
            has_spread = spread is not None and not switch_point.diverged_runs
            cells.append(f"{spread:.4f}" if has_spread else "-")
        cells.append(_verdict(switch_point))
        if has_answers:
            probability = switch_point.answer_probability or 0.0
            bars = _bar(probability, 30 if width >= _WIDE else 12, is_open=True)
            cells.append(f"{_percent(probability)} {bars}")
        is_open = switch_point.switch_percent == search.open_percent
        table.add_row(*cells, style="bold" if is_open else None)
    return table


def _is_of_interest(switch_point: SwitchPointStatus) -> bool:
    was_tried = switch_point.runs or switch_point.in_flight_runs
    return bool(was_tried) or (switch_point.answer_probability or 0.0) >= _LEAST_PROBABILITY


def _switch_point_name(switch_point: SwitchPointStatus, search: SearchStatus) -> str:
    is_baseline = switch_point.switch_percent == 100
    name = f" ({search.first_protocol.upper()})" if is_baseline else ""
    return f"{switch_point.switch_percent:g} %{name}"


def _run_count(switch_point: SwitchPointStatus) -> str:
    return f"{switch_point.runs}" + (
        f" + {switch_point.in_flight_runs}" if switch_point.in_flight_runs else ""
    )


def _accuracy(switch_point: SwitchPointStatus) -> str:
    if switch_point.diverged_runs:
        return f"{switch_point.diverged_runs} diverged"
    return "-" if switch_point.mean_accuracy is None else f"{switch_point.mean_accuracy:.4f}"


def _verdict(switch_point: SwitchPointStatus) -> str:
    return "target" if switch_point.switch_percent == 100 else _VERDICTS[switch_point.accepted]


def search_table(searches: Sequence[SearchStatus]) -> Table:
    """A line for each search."""
    has_simulated = any(search.simulated_cluster for search in searches)
    are_unusual = any(map(_conditions, searches))
    table = _table(box.SIMPLE_HEAD)
    names = ["search", *(["workers"] if has_simulated else []), "state", "runs", "in flight"]
    names += ["failed", "switch at", *(["under"] if are_unusual else [])]
    for name in names:
        is_text = name in {"search", "under"}
        table.add_column(name, justify="left" if is_text else "right", overflow="fold")
    for search in searches:
        of = f" of {search.most_runs}" if search.most_runs else ""
        table.add_row(
            search.study,
            *([workers_text(search.workers, search.simulated_cluster)] if has_simulated else []),
            search.state,
            f"{search.finished_runs}{of}",
            str(sum(run.state == "running" for run in search.in_flight)),
            str(search.failed_runs),
            _short_answer(search),
            *([_conditions(search) or "-"] if are_unusual else []),
        )
    return table


def _short_answer(search: SearchStatus) -> str:
    if search.policy_version is not None:
        return f"{search.switch_percent:g} % (version {search.policy_version})"
    if search.lower_percent is None:
        return "-"
    return f"{search.lower_percent:g} to {search.upper_percent:g} %"


def _conditions(search: SearchStatus) -> str:
    values = condition_values(search.conditions)
    return conditions_text(
        str(values["online"]), str(values["switch_mechanism"]), values["injections"]
    )


def _table(lines: box.Box | None = None) -> Table:
    return Table(
        box=lines, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0), header_style="dim"
    )


def _plain(text: str, style: str = "") -> Text:
    """A text in which brackets mean nothing."""
    return Text(text, style=style)


def _percent(share: float) -> str:
    """Of equal length, so that what stands before or after it is in line."""
    return f"{100 * share:3.0f} %"


def _bar(share: float, width: int, *, is_open: bool = False) -> str:
    """A bar of so many characters; an open one ends where it is full."""
    halves = round(2 * width * min(1.0, max(0.0, share)))
    full = _BAR * (halves // 2) + (_HALF_BAR if halves % 2 else "")
    return full if is_open else full.ljust(width, "░")


def _duration(seconds: float) -> str:
    """For example `45 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
