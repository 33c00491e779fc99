"""Several searches, versions or jobs side by side on one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from syncswitch.searcher.report.comparison import figures
from syncswitch.searcher.report.comparison.sides import MOST_SIDES, Side, sides_of
from syncswitch.searcher.report.comparison.tables import difference_table, equal_facts
from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.headline import headline, key_figures
from syncswitch.searcher.report.page import Answer, made_from, rendered
from syncswitch.searcher.report.sections import Section, titled
from syncswitch.searcher.report.tables.figures import accuracy_table, curve_table, time_table
from syncswitch.searcher.report.tables.table import Table
from syncswitch.storage.errors import UserError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def comparison_page_of(reports: Sequence[ReportData]) -> str:
    """Their answers, their curves in the same axes, and in what they differ.

    Raises UserError where plotly or jinja2 is missing, or there are more than can be told apart.
    """
    if len(reports) > MOST_SIDES:
        raise UserError(
            f"{len(reports)} reports side by side cannot be told apart; at most {MOST_SIDES}"
        )
    sides = sides_of(reports)
    names = " and ".join(dict.fromkeys(side.data.identity.name for side in sides))
    return rendered(
        title=f"{names}: side by side",
        heading=f"{names}, side by side",
        answers=[
            Answer(side.name, headline(side.data), key_figures(side.data), None) for side in sides
        ],
        sections=_sections(sides),
        last_command=None,
        made_from=made_from(reports[0]),
    )


def _sections(sides: Sequence[Side]) -> list[Section]:
    equal = equal_facts(sides)
    alike = f" They have the same {', '.join(equal)}." if equal else ""
    words = f"What came out, what the policies say and what the jobs are.{alike}"
    stars = (
        "Means with their 95 % intervals, and a star at each policy. Marks of one switch point are"
        " drawn side by side."
    )
    lines = "Thick is a run with the policy, thin one with the first protocol alone."
    return [
        Section("differences", "Differences", words, None, (difference_table(sides),)),
        _section(
            "accuracy", "Accuracy against switch point", figures.accuracies, stars, sides,
            (accuracy_table, time_table),
        ),
        _section("curves", "Accuracy over time", figures.curves, lines, sides, (curve_table,)),
    ]  # fmt: skip


def _section(
    name: str,
    title: str,
    draw: Callable[[Sequence[Side]], Figure],
    words: str,
    sides: Sequence[Side],
    tables: Sequence[Callable[[ReportData], Table]],
) -> Section:
    title = titled(title, sides[0].data)
    try:
        figure = draw(sides)
    except UserError as nothing:
        reason = str(nothing)
        return Section(name, title, f"{reason[0].upper()}{reason[1:]}.", None, ())
    shown = (_of_side(side, make(side.data)) for make in tables for side in sides)
    return Section(name, title, words, figure, tuple(table for table in shown if table.rows))


def _of_side(side: Side, table: Table) -> Table:
    """Without its links: the rows of the runs are on the page of the side alone."""
    return replace(table, title=f"{side.name}: {table.title}", trial_ids=())
