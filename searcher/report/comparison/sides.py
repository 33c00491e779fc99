"""What is put side by side, and what each is called; pure."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.figures.style import FIRST, INK, POLICY, SECOND

# Okabe and Ito's, as everywhere; dashes say the same.
_LOOKS = (
    (FIRST, "solid", "circle"),
    (SECOND, "dash", "square"),
    (POLICY, "dot", "diamond"),
    ("#CC79A7", "dashdot", "triangle-up"),
    (INK, "longdash", "triangle-down"),
    ("#56B4E9", "longdashdot", "cross"),
)
MOST_SIDES = len(_LOOKS)


@dataclass(frozen=True)
class Side:
    """One of several reports.

    Attributes:
        letter: A, B and so on.
        name: The letter, and what tells it from the others.
        dash: Of its lines.
        symbol: Of its marks.
    """

    letter: str
    name: str
    data: ReportData
    colour: str
    dash: str
    symbol: str


def sides_of(reports: Sequence[ReportData]) -> tuple[Side, ...]:
    """At least two, at most as many as can be told apart."""
    names = zip(string.ascii_uppercase, _telling(list(map(_parts, reports))), strict=False)
    return tuple(
        Side(letter, f"{letter}: {words}" if words else letter, data, *look)
        for (letter, words), data, look in zip(names, reports, _LOOKS, strict=False)
    )


def _telling(parts: Sequence[tuple[str, ...]]) -> list[str]:
    """The first parts in which they differ, as many as tell all of them apart."""
    names = [""] * len(parts)
    for same in zip(*parts, strict=True):
        if len(set(names)) < len(names) and len(set(same)) > 1:
            pairs = zip(names, same, strict=True)
            names = [f"{name}, {part}" if name else part for name, part in pairs]
    return names


def _parts(data: ReportData) -> tuple[str, ...]:
    """What may tell one from another, what is easiest to read first."""
    job, answer = data.identity, data.answer
    return (
        job.name,
        job.cluster.partition(",")[0],
        job.pair,
        "no policy" if answer is None else f"version {answer.version}",
        "no search" if data.search is None else data.search.study,
        job.fingerprint[:12],
    )
