"""The report as one HTML page that needs nothing else, not even a network."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.headline import headline, key_figures
from syncswitch.searcher.report.sections import Section, sections_of
from syncswitch.searcher.text.command_lines import replay_words, search_words, use_words
from syncswitch.storage.database.defaults import DEFAULT_URL
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.rows import CURRENT, PolicyEntry
from syncswitch.trainers.job.schedule import percent_to_worker_steps
from syncswitch.trainers.replay.recording import REPLAY

if TYPE_CHECKING:
    from markupsafe import Markup


_COMMAND = "command"
# What a search has to be given again, for nobody recorded it.
_OWN_OPTIONS = {
    _COMMAND: "--command, --total-steps and what else the command needs",
    REPLAY: "--recordings",
}
_OTHER_OPTIONS = "options of the trainer itself, such as --profile or --launcher"
_HIDDEN = "***"  # a password


@dataclass(frozen=True)
class Answer:
    """What is on top of a page: the policy, or how far its search is.

    Attributes:
        name: What tells it from the others of the page; None for the only one.
        key_figures: Each a value, and what it is.
        command: What to do with it, in words and as a command line.
    """

    name: str | None
    headline: str
    key_figures: list[tuple[str, str]]
    command: tuple[str, str] | None


def page_of(data: ReportData) -> str:
    """The page, which opens in any browser; text of users is shown, never interpreted.

    Raises UserError where plotly or jinja2 is missing.
    """
    name = data.identity.name
    return rendered(
        title=f"{name}: when to switch",
        heading=f"{name}, {data.identity.cluster}",
        answers=[Answer(None, headline(data), key_figures(data), _use(data))],
        sections=sections_of(data),
        last_command=_search_again(data),
        made_from=made_from(data),
    )


def made_from(data: ReportData) -> str:
    """The end of a page."""
    return f"{data.place} at {data.read_at.isoformat(timespec='seconds')}"


def rendered(*, sections: Sequence[Section], **content: Any) -> str:
    """A page with these sections; see `page.html.jinja` for the rest of what it shows.

    Raises UserError where plotly or jinja2 is missing.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UserError(
            f"a report needs {error.name or 'plotly'}, which is missing;"
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
    from markupsafe import Markup

    return environment.get_template("page.html.jinja").render(
        **content,
        sections=sections,
        figure_json=_figure_json,
        plotly=Markup(get_plotlyjs()),
        nonce=secrets.token_urlsafe(16),
    )


def _figure_json(section: Section) -> Markup:
    """A figure for a script element: nothing in it ends the element."""
    from markupsafe import Markup

    assert section.figure is not None
    return Markup(section.figure.to_json().replace("<", "\\u003c"))


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
    words = replay_words(data.identity, recorded)
    if words is None:
        return None
    also = "nothing is trained"
    if _HIDDEN in data.place:
        also += "; add --recordings with the URL of this database"
    else:
        words += ["--recordings", data.place]
    line = shlex.join([*words, "--storage", "sqlite:///replayed.db"])
    return f"Search among the recorded runs ({also}):", line


def _use_of(entry: PolicyEntry, data: ReportData) -> tuple[str, str]:
    job, policy = data.identity, entry.policy
    version = None if CURRENT in entry.aliases else policy.version
    words = use_words(job, data.reference, data.reference, version, data.conditions)
    line = _line(words, data)
    if data.search is not None and data.search.trainer == _COMMAND:
        step = percent_to_worker_steps(policy.switch_percent, job.total_worker_steps)
        return f"Give your training command switch step {step:,}. The policy as a file:", line
    if job.simulated_cluster is not None:
        return "A simulated cluster found it; try it on your real one:", line
    return "Train with it:" if words[0] == "syncswitch-run" else "Take it along as a file:", line


def _search_again(
    data: ReportData, what: str = "To make the search again, or to go on with it"
) -> tuple[str, str] | None:
    """Why and how; None where there is no search that `run` makes."""
    if data.search is None:
        return None
    words = search_words(data.identity, data.reference, data.search, data.conditions)
    if words is None:
        return None
    own = _OWN_OPTIONS.get(data.search.trainer, _OTHER_OPTIONS)
    return f"{what}; give again what is not recorded ({own}):", _line(words, data)


def _line(words: list[str], data: ReportData) -> str:
    """For a shell; with the database, unless it is the usual one or needs a password."""
    if data.place != DEFAULT_URL and _HIDDEN not in data.place:
        words = [*words, "--storage", data.place]
    return shlex.join(words)
