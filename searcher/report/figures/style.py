"""What all figures share: colours, marks, axes, and the one place that needs plotly."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.report.data import ReportData
from syncswitch.storage.errors import UserError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


# Okabe and Ito's palette, which colour-blind people tell apart; marks and dashes say the same.
FIRST = "#0072B2"
SECOND = "#D55E00"
POLICY = "#009E73"
ACCEPTED = POLICY
REJECTED = SECOND
INK = "#333333"
QUIET = "#767676"
BAND = "rgba(0, 158, 115, 0.13)"

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
_GRID = "#e4e4e4"
_LETTER_PIXELS = 8.0
_AROUND_PIXELS = 90  # above and below the axes
_TELEPHONE_LETTERS = 36

Trace = dict[str, Any]


def figure_of(
    traces: Sequence[Trace],
    *,
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    height: int = 400,
    **layout: Any,
) -> Figure:
    """A figure in the common style, of what plotly's own JSON has; heights are in pixels.

    What the layout says goes before the common style. Raises UserError where plotly is missing.
    """
    try:
        from plotly.graph_objects import Figure
    except ImportError as error:
        raise UserError(
            "figures need plotly, which is missing; run: pip install 'syncswitch[report]'"
        ) from error
    axes = {name: axis for name, axis in layout.items() if name.startswith(("xaxis", "yaxis"))}
    style = {
        "template": "none",
        "height": height,
        "font": {"family": _FONT, "size": 13, "color": INK},
        "margin": {"l": 64, "r": 18, "t": 14, "b": 52},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        **{name: value for name, value in layout.items() if name not in axes},
        **{
            name: _axis(axis, _room(name, axis, height))
            for name, axis in {**axes, "xaxis": x, "yaxis": y}.items()
        },
    }
    return Figure(data=list(traces), layout=style)


def _room(name: str, axis: Mapping[str, Any], height: int) -> int:
    """Letters of a title that fit along an axis, on a telephone too."""
    if name.startswith("x"):
        return _TELEPHONE_LETTERS
    low, high = axis.get("domain", (0, 1))
    return int((high - low) * (height - _AROUND_PIXELS) / _LETTER_PIXELS)


def _axis(axis: Mapping[str, Any], letters: int) -> dict[str, Any]:
    title = axis.get("title")
    if isinstance(title, str):
        title = "<br>".join(textwrap.wrap(title, letters, break_on_hyphens=False))
    return {
        "gridcolor": _GRID,
        "linecolor": QUIET,
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": QUIET,
        "automargin": True,
        "separatethousands": True,
        "exponentformat": "none",
        **axis,
        **({"title": {"text": title, "standoff": 10}} if isinstance(title, str) else {}),
    }


def level(
    y: float, text: str, colour: str, dash: str, *, above: bool, at: str = "start"
) -> dict[str, Any]:
    """A horizontal line across the figure with words at one end of it, as a shape."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": y,
        "y1": y,
        "layer": "between",
        "line": {"color": colour, "width": 1.5, "dash": dash},
        "label": {
            "text": text,
            "textposition": at,
            "yanchor": "bottom" if above else "top",
            "font": {"size": 12, "color": colour},
        },
    }


def plain(text: str) -> str:
    """A text of the user's: plotly would read part of it as HTML."""
    return html.escape(text)


def nothing_compared(data: ReportData) -> str | None:
    """Why no run is compared; None where runs are."""
    if data.compared:
        return None
    name, unplaced = data.identity.name, data.unplaced_runs
    if not unplaced:
        return f"no run of {name} is complete yet"
    runs = "run" if unplaced == 1 else "runs"
    return (
        f"{unplaced:,} complete {runs} of {name} cannot be compared, for nobody said when importing"
        " them for which switch point they count (candidate_percent)"
    )


def switch_title(data: ReportData) -> str:
    """Of an axis of switch points."""
    return f"switch point (% of the job in {plain(data.first)})"


class SwitchAxis:
    """Switch points on an axis of halvings, which has room for 0 % as well; each gets a tick."""

    def __init__(self, percents: Iterable[float]) -> None:
        self.percents = tuple(sorted({0.0 if p <= 0 else p for p in percents}))
        lowest = min((p for p in self.percents if p > 0), default=50.0)
        self._zero = math.log2(lowest) - 1

    def at(self, percent: float) -> float:
        """Where a switch point is."""
        return self._zero if percent <= 0 else max(self._zero, math.log2(percent))

    def axis(self, title: str, *, margin: float = 0.6) -> dict[str, Any]:
        """The axis, as plotly's own JSON has it."""
        places = [self.at(percent) for percent in self.percents]
        return {
            "title": title,
            "tickmode": "array",
            "tickvals": places,
            "ticktext": [f"{percent:.4g}" for percent in self.percents],
            "range": [min(places) - margin, max(places) + margin],
        }
