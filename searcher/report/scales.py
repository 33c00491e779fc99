"""The scales of the figures: limits, ticks, and what lies outside; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_LEAST_TICKS = 3
_ROUNDING = 1e-9
_MOST_HALVINGS = 8  # 0.39 %; earlier switches share what is left of the axis
_REACH_BANDS = 6.0  # around the band, in its own height
_REACH_DEVIATIONS = 10.0  # around the median where nothing says what is close
_REACH_SHARE = 0.1  # of the median, likewise
_LEAST_MAJORITY = 4  # values: most of fewer are no reason to move the axis
_MARGIN = 0.1
_BAND_MARGIN = 0.25  # of the band, so that it does not look like all there is
_LEAST_MARGIN = 0.005  # of the largest value
_LABEL_MARGIN = 0.12  # beside it, for labels of what lies outside
_MOST_RUN_TICKS = 10


class SwitchScale:
    """Switch points by halvings, with a place for 0 % before the lowest.

    Attributes:
        ticks: The switch points to write, ascending: halvings of 100 %, and 0 % if it is shown.
    """

    def __init__(self, percents: Sequence[float]) -> None:
        """Makes the scale that has room for all of these."""
        positive = [percent for percent in percents if percent > 0] or [100.0]
        most = min(_MOST_HALVINGS, math.ceil(math.log2(100.0 / min(positive)) - _ROUNDING))
        least = math.floor(math.log2(100.0 / max(positive)) + _ROUNDING)
        least = max(0, min(least, most + 1 - _LEAST_TICKS))
        most = max(most, least + _LEAST_TICKS - 1)
        halvings = [math.ldexp(100.0, -number) for number in range(most, least - 1, -1)]
        self._lowest = halvings[0]
        has_zero = any(percent < self._lowest for percent in percents)
        self.ticks = (0.0, *halvings) if has_zero else tuple(halvings)

    def at(self, percent: float) -> float:
        """The place of a switch point: a halving is 1."""
        if percent >= self._lowest:
            return math.log2(percent)
        return math.log2(self._lowest) - 1 + max(0.0, percent) / self._lowest

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the axis."""
        return self.at(self.ticks[0]) - 0.5, self.at(self.ticks[-1]) + 0.5


def switch_label(percent: float) -> str:
    """A halving in few characters: `0.39`, `1.6`, `6.25`, `100`."""
    return f"{percent:.2g}" if percent < 5 else f"{percent:g}"


def zoomed(
    values: Sequence[float],
    band: tuple[float, float] | None = None,
    possible: tuple[float | None, float | None] = (None, None),
) -> tuple[float, float]:
    """The limits of an axis of results, which show differences near the target.

    A failed run far away would squeeze all others into a line, so it does not move the limits. Most
    of four or more values do, wherever they are.

    Args:
        values: The results in the metric's own unit; infinite where a run diverged.
        band: The accepted results from the least to the largest; both the target where it is not
            known how much may be lost. None without a target.
        possible: The least and the largest possible result.
    """
    finite = sorted(value for value in values if math.isfinite(value))
    middle = statistics.median(finite) if finite else 0.0
    if band is None:
        low = high = middle
        reach = 0.0
    else:
        low, high = band
        reach = _REACH_BANDS * (high - low)
    if not reach:
        deviation = statistics.median([abs(value - middle) for value in finite] or [0.0])
        reach = max(_REACH_DEVIATIONS * deviation, _REACH_SHARE * abs(middle))
    close = sum(low - reach <= value <= high + reach for value in finite)
    if len(finite) >= _LEAST_MAJORITY and 2 * close < len(finite):
        low, high = min(low, middle), max(high, middle)
    near = [low, high, *(value for value in finite if low - reach <= value <= high + reach)]
    least, largest = min(near), max(near)
    height = 0.0 if band is None else _BAND_MARGIN * (band[1] - band[0])
    # Without a band, differences that small would look large.
    room = max(_MARGIN * (largest - least), height or _LEAST_MARGIN * abs(largest)) or _MARGIN
    low, high = least - room, largest + room
    # Half a mark beyond what is possible is enough.
    beyond = 0.4 * room
    if possible[0] is not None:
        low = max(low, possible[0] - beyond)
    if possible[1] is not None:
        high = min(high, possible[1] + beyond)
    label = _LABEL_MARGIN * (high - low)
    is_below, is_above = any(value < low for value in values), any(value > high for value in values)
    return low - label * is_below, high + label * is_above


@dataclass(frozen=True)
class EdgeLabel:
    """Results outside of an axis, to be written at its edge.

    Attributes:
        places: Of the runs along the edge, ascending.
        is_above: Whether they lie above the axis, or below.
        text: Their values.
    """

    places: tuple[float, ...]
    is_above: bool
    text: str


def edge_labels(
    points: Sequence[tuple[float, float]], limits: tuple[float, float], room: float
) -> list[EdgeLabel]:
    """Labels of the points, as (place, value), whose values lie outside of these limits.

    A run that diverged has an infinite value. Points at an edge that are closer than `room` share a
    label.
    """
    labels = []
    for is_above in (False, True):
        outside = sorted(
            (place, value)
            for place, value in points
            if (value > limits[1] if is_above else value < limits[0])
        )
        groups: list[list[tuple[float, float]]] = []
        for point in outside:
            if groups and point[0] - groups[-1][-1][0] < room:
                groups[-1].append(point)
            else:
                groups.append([point])
        for group in groups:
            places, values = zip(*group, strict=True)
            labels.append(EdgeLabel(places, is_above, _outside_text(values)))
    return labels


def _outside_text(values: Sequence[float]) -> str:
    finite = [value for value in values if math.isfinite(value)]
    diverged = len(values) - len(finite)
    parts = []
    if finite:
        ends = dict.fromkeys(f"{value:.3g}" for value in (min(finite), max(finite)))
        runs = f"{len(finite)} runs: " if len(finite) > 1 else ""
        parts.append(runs + " to ".join(ends))
    if diverged:
        parts.append("diverged" if len(values) == 1 else f"{diverged} diverged")
    return ", ".join(parts)


def run_ticks(runs: int) -> list[int]:
    """The numbers to write on an axis of so many runs: the first, then multiples of a step."""
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    step = next(step for step in steps if runs <= step * _MOST_RUN_TICKS)
    return sorted({1, *range(step, runs + 1, step)})
