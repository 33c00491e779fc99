"""Colours, axes and SVG of the figures; the one place that imports matplotlib."""

from __future__ import annotations

import html
import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from syncswitch.searcher.report.scales import (
    SwitchScale,
    edge_labels,
    run_ticks,
    switch_label,
    zoomed,
)
from syncswitch.storage.errors import UserError

# Okabe and Ito's palette, which colour-blind people can tell apart; marks and dashes differ too.
FIRST = "#0072B2"
SECOND = "#D55E00"
POLICY = "#009E73"
QUIET = "#767676"
BAND = "#DDF1EB"
_INK = "#333333"
_LABEL_SHARE = 0.22  # of an axis that a label at its edge takes
_LETTER_SHARE = 0.018  # and a letter of it
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
            "figures need matplotlib, which is missing; run: pip install 'syncswitch[report]'",
            code="package-missing",
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
            if labels:
                shown = dict(zip(labels, handles, strict=True))
                panel.legend(
                    shown.values(), shown.keys(), loc="lower left", bbox_to_anchor=(0, 1), ncols=2,
                    borderaxespad=0, handlelength=1.5, columnspacing=1,
                )  # fmt: skip
        figure.align_ylabels(axes)
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


def label_switches(axis: Any, scale: SwitchScale, title: str) -> None:
    """Writes the ticks of a scale of switch points and a title on an axis of matplotlib."""
    axis.set_ticks([scale.at(tick) for tick in scale.ticks], labels=map(switch_label, scale.ticks))
    axis.axes.set(**{f"{axis.axis_name}lim": scale.limits})
    axis.set_label_text(literal(title))


def label_runs(axes: Any, runs: int) -> None:
    """Numbers the runs from left to right."""
    axes.set_xlim(0.5, runs + 0.5)
    axes.set_xticks(run_ticks(runs))


def zoom(
    axes: Any,
    points: Sequence[tuple[float, float]],
    band: tuple[float, float] | None,
    possible: tuple[float | None, float | None] = (None, None),
    ends: Sequence[tuple[float, float]] | None = None,
) -> None:
    """Shows the neighbourhood of a target; what lies outside is marked at the edge.

    Call it once the limits of x are set.

    Args:
        axes: Of matplotlib.
        points: Place and value of each result; infinite where a run diverged.
        band: The accepted values, see `scales.zoomed`.
        possible: The least and the largest possible value.
        ends: Those of the points that are marked where they lie outside; None for all.
    """
    marked = points if ends is None else [*points, *ends]
    limits = zoomed([value for _, value in marked], band, possible)
    axes.set_ylim(limits)
    left, right = axes.get_xlim()
    along = {"transform": axes.get_xaxis_transform(), "scaley": False}
    for label in edge_labels(ends or points, limits, _LABEL_SHARE * (right - left)):
        edge, into, marker, side = (
            (1.0, -1, "^", "top") if label.is_above else (0.0, 1, "v", "bottom")
        )
        heights = [edge + into * 0.03] * len(label.places)
        axes.plot(label.places, heights, marker, color=SECOND, ms=6, **along)
        half = _LETTER_SHARE * (right - left) * len(label.text) / 2
        middle = (label.places[0] + label.places[-1]) / 2
        place = max(left + half, min(middle, right - half))
        axes.annotate(
            label.text, (place, edge), (0, into * 11), xycoords=along["transform"],
            textcoords="offset points", color=SECOND, fontsize=8.5, ha="center", va=side,
        )  # fmt: skip


def axis_title(text: str, longest_line: int = 36) -> str:
    """The title of an axis, in lines that are no longer than the axis."""
    return literal(textwrap.fill(text, longest_line))


def literal(text: str) -> str:
    """A user's text, in which matplotlib would otherwise read `$` as the start of a formula."""
    return text.replace("$", r"\$")
