"""The report as one HTML page that needs nothing else, neither a network nor a script."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from syncswitch.searcher.command_lines import replay_words, search_words, use_words
from syncswitch.searcher.report import figures, words
from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.drawing import Drawing
from syncswitch.searcher.report.tables import Table, tables_of, use_table
from syncswitch.searcher.search.explanation import why_sentences
from syncswitch.storage.database.defaults import DEFAULT_URL
from syncswitch.storage.errors import UserError
from syncswitch.storage.files import whole_file
from syncswitch.storage.policies.registry import CURRENT, PolicyEntry
from syncswitch.trainers.job.schedule import percent_to_worker_steps
from syncswitch.trainers.replay.recording import REPLAY

_COMMAND = "command"
# What a search has to be given again, for nobody recorded it.
_OWN_OPTIONS = {
    _COMMAND: "--command, --total-steps and what else the command needs",
    REPLAY: "--recordings",
}
_OTHER_OPTIONS = "options of the trainer itself, such as --profile or --launcher"
_HIDDEN = "***"  # a password


@dataclass(frozen=True)
class Section:
    """A heading and what is under it.

    Attributes:
        name: Short, for links.
        words: What the figure says; where there is none, why.
        points: What else there is to say, sentence by sentence.
    """

    name: str
    title: str
    words: str
    figure: Drawing | None
    points: tuple[str, ...] = ()
    table: Table | None = None


_BEGINNING = b"<!DOCTYPE html>"


def write_page(page: str, path: Path) -> None:
    """Writes a page into a file, where nothing or an earlier report is.

    Raises UserError where something else is there, or the file cannot be written.
    """
    with whole_file(path, replaces=(_BEGINNING,)) as file:
        file.write(page.encode())


def page_of(data: ReportData) -> str:
    """The page, which opens in any browser; text of users is shown, never interpreted.

    Raises UserError where matplotlib or jinja2 is missing.
    """
    try:
        import matplotlib  # noqa: F401 (or each section would say that it is missing)
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise UserError(
            f"a report needs {error.name or 'matplotlib'}, which is missing;"
            " run: pip install 'syncswitch[report]'"
        ) from error
    environment = Environment(
        loader=PackageLoader("syncswitch.searcher.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    name = data.identity.name
    return environment.get_template("page.html.jinja").render(
        title=f"{name}: when to switch",
        heading=f"{name}, {data.identity.cluster}",
        headline=words.headline(data),
        key_figures=words.key_figures(data),
        command=_use(data),
        sections=sections_of(data),
        tables=tables_of(data),
        last_command=_search_again(data),
        made_from=f"{data.place} at {data.read_at.isoformat(timespec='seconds')}",
    )


def sections_of(data: ReportData) -> list[Section]:
    """Those with a figure, in the order of the page."""
    metric = data.identity.decided_by
    accuracy = f"{metric.name[:1].upper()}{metric.name[1:]}"
    why = why_sentences(data.why, data.first, metric) if data.why is not None else []
    uses = use_table(data)
    return [
        _section(
            data,
            "accuracy",
            f"{accuracy} against switch point",
            figures.accuracy_by_switch,
            words.accuracy_sentence,
        ),
        _section(data, "time", "Training time", figures.training_time, words.time_sentence),
        _section(
            data,
            "search",
            "The course of the search",
            figures.search_path,
            words.path_sentence,
            points=tuple(why),
        ),
        _section(
            data,
            "curves",
            f"{accuracy} over time",
            figures.accuracy_over_time,
            lambda _: "As it trains; the mark on a thick line is the switch.",
        ),
        _section(
            data,
            "uses",
            "Later runs with the policy",
            figures.later_uses,
            words.uses_figure_sentence,
            table=uses if uses.rows else None,
        ),
    ]


def _section(
    data: ReportData,
    name: str,
    title: str,
    draw: Callable[[ReportData], Drawing],
    say: Callable[[ReportData], str],
    points: tuple[str, ...] = (),
    table: Table | None = None,
) -> Section:
    try:
        figure = draw(data)
        return Section(name, title, say(data), figure, points, table)
    except UserError as nothing:
        text = str(nothing)
        return Section(name, title, f"{text[0].upper()}{text[1:]}.", None, points, table)


def _use(data: ReportData) -> tuple[str, str] | None:
    """What to do with this, in words and as a command line."""
    if data.policy is not None:
        return _use_of(data.policy, data)
    if data.trouble is not None:
        return None
    return _replay(data) if data.search is None else _search_again(data, "Go on with it")


def _replay(data: ReportData) -> tuple[str, str] | None:
    """A search among the recorded runs; None where they do not suffice."""
    replays = {one.study for one in data.searches if one.trainer == REPLAY}
    recorded = {
        run.trial.candidate_percent
        for run in data.runs
        if run.whole is not None
        and run.trial.candidate_percent is not None
        and run.trial.conditions.is_undisturbed
        and run.trial.study not in replays
    }
    line_words = replay_words(data.identity, recorded)
    if line_words is None:
        return None
    also = "nothing is trained"
    if _HIDDEN in data.place:
        also += "; add --recordings with the URL of this database"
    else:
        line_words += ["--recordings", data.place]
    line = shlex.join([*line_words, "--storage", "sqlite:///replayed.db"])
    return f"Search among the recorded runs ({also}):", line


def _use_of(entry: PolicyEntry, data: ReportData) -> tuple[str, str]:
    job, policy = data.identity, entry.policy
    version = None if CURRENT in entry.aliases else policy.version
    line_words = use_words(job, data.reference, data.reference, version, data.conditions)
    line = _line(line_words, data)
    if data.search is not None and data.search.trainer == _COMMAND:
        step = percent_to_worker_steps(policy.switch_percent, job.total_worker_steps)
        return f"Give your training command switch step {step:,}. The policy as a file:", line
    if job.simulated_cluster is not None:
        return "A simulated cluster found it; try it on your real one:", line
    return "Train with it:" if line_words[
        0
    ] == "syncswitch-run" else "Take it along as a file:", line


def _search_again(
    data: ReportData, what: str = "To make the search again, or to go on with it"
) -> tuple[str, str] | None:
    """Why and how; None where there is no search that `run` makes."""
    if data.search is None:
        return None
    line_words = search_words(data.identity, data.reference, data.search, data.conditions)
    if line_words is None:
        return None
    own = _OWN_OPTIONS.get(data.search.trainer, _OTHER_OPTIONS)
    return f"{what}; give again what is not recorded ({own}):", _line(line_words, data)


def _line(line: list[str], data: ReportData) -> str:
    """For a shell; with the database, unless it is the usual one or needs a password."""
    if data.place != DEFAULT_URL and _HIDDEN not in data.place:
        line = [*line, "--storage", data.place]
    return shlex.join(line)
