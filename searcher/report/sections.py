"""The sections of a report: what each says, draws and lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.searcher.report import figures, sentences
from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.tables import evidence as evidence_tables
from syncswitch.searcher.report.tables import figures as figure_tables
from syncswitch.searcher.report.tables.further import further_table
from syncswitch.searcher.report.tables.table import Table
from syncswitch.storage.errors import UserError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Section:
    """A heading and what is under it.

    Attributes:
        name: Short, of letters and hyphens, for links.
        words: What to look for; where there is no figure, why.
        points: What else there is to say, sentence by sentence.
    """

    name: str
    title: str
    words: str
    figure: Figure | None
    tables: tuple[Table, ...]
    points: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Kind:
    name: str
    title: str
    draw: Callable[[ReportData], Figure]
    say: Callable[[ReportData], str]
    tables: tuple[Callable[[ReportData], Table], ...]
    list: Callable[[ReportData], list[str]] = lambda _: []


_FIGURES = (
    _Kind(
        "accuracy",
        "Accuracy against switch point",
        figures.accuracy_by_switch,
        sentences.accuracy_sentence,
        (figure_tables.accuracy_table, further_table),
    ),
    _Kind(
        "search",
        "The course of the search",
        figures.search_path,
        sentences.path_sentence,
        (figure_tables.path_table,),
    ),
    _Kind(
        "why",
        "Why, and how sure",
        figures.beliefs,
        sentences.belief_sentence,
        (figure_tables.belief_table,),
        sentences.why_sentences,
    ),
    _Kind(
        "curves",
        "Accuracy over time",
        figures.accuracy_over_time,
        sentences.curves_sentence,
        (figure_tables.curve_table,),
    ),
    _Kind(
        "time",
        "Training time",
        figures.training_time,
        sentences.time_sentence,
        (figure_tables.time_table,),
    ),
    _Kind(
        "cost",
        "The cost of the search",
        figures.search_cost,
        sentences.cost_sentence,
        (figure_tables.cost_table,),
    ),
    _Kind(
        "payback",
        "When the search pays off",
        figures.payback,
        sentences.payback_sentence,
        (figure_tables.payback_table,),
    ),
    _Kind(
        "phases",
        "Throughput and staleness",
        figures.phases,
        sentences.phases_sentence,
        (figure_tables.phase_table,),
    ),
    _Kind(
        "events",
        "Stragglers and failures",
        figures.events,
        sentences.events_sentence,
        (figure_tables.event_table,),
    ),
)

_EVIDENCE = (
    evidence_tables.policy_table,
    evidence_tables.evidence_table,
    evidence_tables.use_table,
    evidence_tables.version_table,
    evidence_tables.search_table,
    evidence_tables.run_table,
    evidence_tables.identity_table,
)


def sections_of(data: ReportData) -> list[Section]:
    """All of them, in the order of the page."""
    sections = [_section(kind, data) for kind in _FIGURES]
    tables = tuple(table for make in _EVIDENCE if (table := make(data)).rows)
    origin = "What all of this rests on: the policy, the runs behind it, the job and its software."
    return [*sections, Section("origin", "Policy, evidence and job", origin, None, tables)]


def _section(kind: _Kind, data: ReportData) -> Section:
    points, title = tuple(kind.list(data)), titled(kind.title, data)
    try:
        figure = kind.draw(data)
    except UserError as nothing:
        words = str(nothing)
        return Section(kind.name, title, f"{words[0].upper()}{words[1:]}.", None, (), points)
    tables = tuple(table for make in kind.tables if (table := make(data)).rows)
    return Section(kind.name, title, kind.say(data), figure, tables, points)


def titled(title: str, data: ReportData) -> str:
    """A title with the job's metric for accuracy."""
    name = data.identity.decided_by.name
    return title.replace("Accuracy", f"{name[:1].upper()}{name[1:]}")
