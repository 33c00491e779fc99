"""Colours, axes and SVG of the figures; the one place that imports matplotlib."""

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

# Okabe and Ito's palette, which colour-blind people can tell apart; marks and dashes differ too.
FIRST = "#0072B2"
SECOND = "#D55E00"
POLICY = "#009E73"
QUIET = "#767676"
BAND = "#DDF1EB"
_INK = "#333333"
# Wide enough to show letters in their own size on a telephone; wider screens show two in a row.
_WIDTH_INCHES = 5.0
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
    """A figure, which notebooks show.

    Attributes:
        description: Its contents in words, for screen readers.
        svg: The figure as an element of HTML pages; empty until it is drawn.
        axes: The axes of matplotlib that it was drawn on.
    """

    title: str
    description: str
    svg: str = ""
    axes: Sequence[Any] = field(default=(), repr=False, compare=False)

    def _repr_svg_(self) -> str:
        return self.svg


@contextmanager
def drawn(
    drawing: Drawing, *heights_inches: float, sharex: bool = False
) -> Iterator[Sequence[Any]]:
    """Gives axes of these heights to draw on, one above the other; then the drawing gets its SVG.

    Raises UserError if matplotlib is missing.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "figures need matplotlib, which is missing; run: pip install 'syncswitch[report]'"
        ) from error
    # Not the user's settings, which may need LaTeX.
    usual = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    # The salt makes names in the SVG that no other figure of a page has, and always the same ones.
    with matplotlib.rc_context({**usual, **_STYLE, "svg.hashsalt": drawing.title}):
        figure = Figure(figsize=(_WIDTH_INCHES, sum(heights_inches)), layout="constrained")
        ratios = {"height_ratios": heights_inches}
        grid = figure.subplots(
            len(heights_inches), squeeze=False, sharex=sharex, gridspec_kw=ratios
        )
        axes = list(grid[:, 0])
        drawing.axes = axes
        yield axes
        for panel in axes:
            handles, labels = panel.get_legend_handles_labels()
            if len(set(labels)) > 1:
                shown = dict(zip(labels, handles, strict=True))
                panel.legend(
                    shown.values(), shown.keys(), loc="lower left", bbox_to_anchor=(0, 1), ncols=2,
                    borderaxespad=0, handlelength=1.5, columnspacing=1,
                )  # fmt: skip
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    drawing.svg = _element(text.getvalue(), drawing)


def _element(svg: str, drawing: Drawing) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    words = f"<title>{html.escape(drawing.title)}</title>"
    words += f"<desc>{html.escape(drawing.description)}</desc>"
    return re.sub(r"<svg([^>]*)>", lambda tag: f'<svg role="img"{tag[1]}>{words}', svg, count=1)


class SwitchAxis:
    """Switch points on an axis of halvings, which has room for 0 % as well."""

    def __init__(self, percents: Sequence[float]) -> None:
        self.percents = tuple(sorted({0.0 if p <= 0 else p for p in percents}))
        lowest = min((p for p in self.percents if p > 0), default=50.0)
        self._zero = math.log2(lowest) - 1

    def at(self, percent: float) -> float:
        return self._zero if percent <= 0 else max(self._zero, math.log2(percent))

    def label(
        self, axis: Any, limit: Callable[[float, float], Any], first: str, title: str | None = None
    ) -> None:
        """Writes as many ticks as have room, and the title, on an axis of matplotlib.

        `limit` sets the limits of the axis. The usual title names the first protocol.
        """
        places: list[float] = []
        shown, room = [], (self.at(100.0) - self._zero) / 12
        for percent in reversed(self.percents):
            # There is room for twelve.
            if percent == 0 or not places or places[-1] - self.at(percent) > room:
                places.append(self.at(percent))
                shown.append(f"{percent:.3g}")
        axis.set_ticks(places, labels=shown)
        limit(min(places) - 0.5, max(places) + 0.5)
        axis.set_label_text(literal(title or f"switch point (% of the job in {first})"))


def axis_title(text: str, longest_line: int = 36) -> str:
    """The title of an axis, in lines that are no longer than the axis."""
    return literal(textwrap.fill(text, longest_line))


def literal(text: str) -> str:
    """A user's text, in which matplotlib would otherwise read `$` as the start of a formula."""
    return text.replace("$", r"\$")
