"""What all figures share: colours, and how a figure becomes SVG; the one place for matplotlib."""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from syncswitch.storage.errors import UserError

# Okabe and Ito's palette, which colour-blind people tell apart; marks and dashes say the same.
FIRST = "#0072B2"
SECOND = "#D55E00"
POLICY = "#009E73"
QUIET = "#767676"
BAND = "#DDF1EB"
_INK = "#333333"
# So wide that a telephone shows the letters as large as they are; wider screens have two beside
# each other.
_WIDTH_INCHES = 5.0
_LONGEST_TITLE = 36
_STYLE: Mapping[str, Any] = {
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "system-ui", "Segoe UI", "Roboto", "sans-serif"],
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#e4e4e4",
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.5,
}


@dataclass
class Drawing:
    """A figure. Notebooks show it.

    Attributes:
        title: What it is.
        description: What it shows, for who cannot see it.
        svg: An element for HTML pages; empty until it is drawn.
        axes: Those of matplotlib that it was drawn on.
    """

    title: str
    description: str
    svg: str = ""
    axes: Sequence[Any] = field(default=(), repr=False, compare=False)

    def _repr_svg_(self) -> str:
        return self.svg


@contextmanager
def drawn(
    drawing: Drawing, heights_inches: Sequence[float] = (3.0,), **options: Any
) -> Iterator[Sequence[Any]]:
    """Gives the axes to draw on, one above the other; with the end the drawing has its SVG.

    Args:
        drawing: Gets the SVG.
        heights_inches: Of each axes.
        options: Of matplotlib's `Figure.subplots`.

    Raises:
        UserError: matplotlib is missing.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "figures need matplotlib, which is missing; run: pip install 'syncswitch[report]'"
        ) from error
    # The salt makes names in the SVG that no other figure of a page has, and always the same ones.
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": drawing.title}):
        figure = Figure(figsize=(_WIDTH_INCHES, sum(heights_inches)), layout="constrained")
        axes = figure.subplots(
            len(heights_inches),
            squeeze=False,
            gridspec_kw={"height_ratios": heights_inches},
            **options,
        )[:, 0]
        drawing.axes = axes
        yield axes
        for one in axes:
            handles, labels = one.get_legend_handles_labels()
            if len(set(labels)) > 1:
                known = dict(zip(labels, handles, strict=True))
                one.legend(
                    known.values(), known.keys(), loc="lower left", bbox_to_anchor=(0, 1), ncols=2,
                    borderaxespad=0, handlelength=1.5, columnspacing=1,
                )  # fmt: skip
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    drawing.svg = _element(text.getvalue(), drawing)


def _element(svg: str, drawing: Drawing) -> str:
    """Without what only a file of its own needs, with words for who cannot see it."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    words = f"<title>{html.escape(drawing.title)}</title>"
    words += f"<desc>{html.escape(drawing.description)}</desc>"
    return re.sub(r"<svg([^>]*)>", rf'<svg role="img"\1>{_literal(words)}', svg, count=1)


def _literal(text: str) -> str:
    return text.replace("\\", r"\\")


class SwitchAxis:
    """Switch points on an axis of halvings, which has room for 0 % as well."""

    def __init__(self, percents: Sequence[float]) -> None:
        self.percents = tuple(sorted({0.0 if p <= 0 else p for p in percents}))
        lowest = min((p for p in self.percents if p > 0), default=50.0)
        self._zero = math.log2(lowest) - 1

    def at(self, percent: float) -> float:
        """Where a switch point is."""
        return self._zero if percent <= 0 else max(self._zero, math.log2(percent))

    def label(self, axis: Any, limit: Callable[[float, float], Any], first: str) -> None:
        """Writes ticks, as many as have room, and the title on an axis of matplotlib."""
        places: list[float] = []
        shown = []
        for percent in reversed(self.percents):
            if percent == 0 or not places or places[-1] - self.at(percent) > self._room:
                places.append(self.at(percent))
                shown.append(f"{percent:.3g}")
        axis.set_ticks(places, labels=shown)
        limit(min(places) - 0.5, max(places) + 0.5)
        axis.set_label_text(f"switch point (% of the job in {literal(first)})")

    @property
    def _room(self) -> float:
        """Least distance of two ticks; twelve have room."""
        return (self.at(100.0) - self._zero) / 12


def axis_title(text: str) -> str:
    """The title of an axis, in lines that are no longer than the axis."""
    return literal(textwrap.fill(text, _LONGEST_TITLE))


def literal(text: str) -> str:
    """A text of the user's: matplotlib would read part of it as a formula."""
    return text.replace("$", r"\$")
