"""Limits, ticks and what lies outside, in numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest

from syncswitch.searcher.report.scales import (
    EdgeLabel,
    SwitchScale,
    edge_labels,
    run_ticks,
    switch_label,
    zoomed,
)

INFINITE = math.inf


@pytest.mark.parametrize(
    ("percents", "ticks"),
    [
        ([100.0, 50.0, 1.5625, 0.0], "0 1.6 3.1 6.25 12.5 25 50 100"),
        ([100.0, 75.0], "25 50 100"),
        ([100.0, 7.3], "6.25 12.5 25 50 100"),
        ([6.25], "6.25 12.5 25"),
        ([100.0], "25 50 100"),
        ([0.0], "0 25 50 100"),
        ([], "25 50 100"),
        ([100.0, 0.05], "0 0.39 0.78 1.6 3.1 6.25 12.5 25 50 100"),
    ],
)
def test_switch_points_are_written_by_halvings(percents: Sequence[float], ticks: str) -> None:
    scale = SwitchScale(percents)
    assert " ".join(map(switch_label, scale.ticks)) == ticks
    low, high = scale.limits
    assert all(low < scale.at(percent) < high for percent in percents)


def test_a_halving_has_the_same_length_everywhere_and_0_one_more() -> None:
    scale = SwitchScale([100.0, 12.5, 0.0])
    places = [scale.at(percent) for percent in (100.0, 50.0, 25.0, 12.5, 0.0)]
    lengths = [before - after for before, after in itertools.pairwise(places)]
    assert lengths == pytest.approx([1.0] * 4)
    assert scale.limits == (scale.at(0.0) - 0.5, scale.at(100.0) + 0.5)
    assert scale.at(6.25) == pytest.approx(scale.at(0.0) + 0.5)


BAND = (0.94, 0.95)


@pytest.mark.parametrize(
    ("values", "band", "limits"),
    [
        ([0.951, 0.949, 0.947], BAND, (0.9375, 0.9535)),
        ([0.951, 0.949, 0.15], BAND, (0.93558, 0.9535)),
        ([0.951, 0.949, -INFINITE], BAND, (0.93558, 0.9535)),
        ([0.15], BAND, (0.9357, 0.9525)),
        ([0.951, 0.949, 0.15, 0.14], BAND, (0.93558, 0.9535)),
        ([0.90, 0.95], BAND, (0.895, 0.955)),
        ([0.80, 0.81, 0.80, 0.82, 0.79], BAND, (0.774, 0.966)),
        ([0.995, 1.0], (0.98, 0.99), (0.9775, 1.001)),
        ([], BAND, (0.9375, 0.9525)),
    ],
    ids=[
        "all near",
        "one failed",
        "one diverged",
        "the only one failed",
        "half of them failed",
        "a little too low",
        "most are elsewhere",
        "at the best there is",
        "none",
    ],
)
def test_an_axis_shows_the_neighbourhood_of_the_target(
    values: Sequence[float], band: tuple[float, float], limits: tuple[float, float]
) -> None:
    assert zoomed(values, band, (0.0, 1.0)) == pytest.approx(limits)


@pytest.mark.parametrize(
    ("values", "band", "limits"),
    [
        ([2.0, 2.1, 30.0], None, (1.9895, 2.12502)),
        ([2.0], None, (1.99, 2.01)),
        ([2.0, 2.1, 30.0], (2.0, 2.0), (1.9895, 2.12502)),
        ([0.0, 0.0], None, (-0.04, 0.1)),
    ],
    ids=["a loss", "one run", "no threshold yet", "nothing but zero"],
)
def test_without_a_threshold_the_median_says_what_is_near(
    values: Sequence[float], band: tuple[float, float] | None, limits: tuple[float, float]
) -> None:
    assert zoomed(values, band, (0.0, None)) == pytest.approx(limits)


def test_what_lies_outside_is_written_at_its_edge() -> None:
    points = [(1.0, 0.15), (1.1, 0.1), (1.2, -INFINITE), (5.0, 0.95), (6.0, 0.2), (8.0, 30.0)]
    assert edge_labels(points, (0.9, 1.0), room=1.0) == [
        EdgeLabel((1.0, 1.1, 1.2), False, "2 runs: 0.1 to 0.15, 1 diverged"),
        EdgeLabel((6.0,), False, "0.2"),
        EdgeLabel((8.0,), True, "30"),
    ]
    alike = edge_labels([(1.0, 0.15), (2.0, 0.15)], (0.9, 1.0), room=2.0)
    assert [label.text for label in alike] == ["2 runs: 0.15"]
    assert [label.text for label in edge_labels([(0.0, INFINITE)], (0, 1), 1)] == ["diverged"]
    assert edge_labels([(0.0, math.nan), (1.0, 0.9)], (0.9, 1.0), 1) == []


@pytest.mark.parametrize(
    ("runs", "ticks"),
    [
        (1, [1]),
        (3, [1, 2, 3]),
        (10, [*range(1, 11)]),
        (12, [1, 2, 4, 6, 8, 10, 12]),
        (30, [1, 5, 10, 15, 20, 25, 30]),
        (300, [1, 50, 100, 150, 200, 250, 300]),
    ],
)
def test_runs_are_counted_in_whole_numbers(runs: int, ticks: list[int]) -> None:
    assert run_ticks(runs) == ticks
