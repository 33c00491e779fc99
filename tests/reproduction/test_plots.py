"""The layout of the drawings of the papers' figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from reproduction.plots import plot
from reproduction.record_frames import frame_of_records
from reproduction.runs import FigureRun
from reproduction.tables import (
    curves,
    generality,
    momentum,
    order,
    overhead,
    stragglers,
    timing,
)
from tests.reproduction.test_comparison import run

BSP = [run(100, 0.90, 100), run(100, 0.92, 100)]
SWITCHED = [run(50, 0.91, 60), run(50, 0.93, 60)]
ASP_FIRST = [run(50, 0.85, 70, protocols=("asp", "bsp"))]
LARGE = [replace(one, workers=16) for one in [*BSP, *SWITCHED]]
DISTURBED = [replace(one, under="elastic, straggler:worker=1") for one in SWITCHED]
NO_MOMENTUM = [replace(one, variant="momentum_after_switch=zero") for one in SWITCHED]


def words(table: Any) -> list[str]:
    """The words in a drawing, from top to bottom."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", plot(table).svg)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (timing([*BSP, *SWITCHED]), [("8 workers", ["BSP", "BSP 50 %, ASP"])]),
        (
            order([*BSP, *SWITCHED, *ASP_FIRST]),
            [("ASP first", ["50 % in BSP"]), ("BSP first", ["100 % in BSP", "50 % in BSP"])],
        ),
        (
            timing([*BSP, *SWITCHED, *LARGE]),
            [(f"{size} workers", ["BSP", "BSP 50 %, ASP"]) for size in (16, 8)],
        ),
        (
            generality([*BSP, *SWITCHED, *LARGE]),
            [(f"policy of {size} workers", ["8 workers", "16 workers"]) for size in (16, 8)],
        ),
        (
            stragglers([*BSP, *SWITCHED, *DISTURBED]),
            [
                ("elastic, stragglers", ["BSP 50 %, ASP"]),
                ("undisturbed", ["BSP", "BSP 50 %, ASP"]),
            ],
        ),
        (
            momentum([*BSP, *SWITCHED, *NO_MOMENTUM]),
            [("8 workers", ["BSP", "BSP 50 %, ASP", "BSP 50 %, ASP zero"])],
        ),
    ],
    ids=["timing", "order", "size", "generality", "stragglers", "momentum"],
)
def test_what_is_compared_stands_beside_each_other(
    rows: Sequence[dict[str, Any]], expected: list[tuple[str, list[str]]]
) -> None:
    written = words(rows)
    for name, places in expected:
        assert set(places) <= set(written)
        assert len(expected) == 1 or name in written


def test_a_table_for_pandas_is_drawn_like_its_rows() -> None:
    rows = timing([*BSP, run(0, None, 3)])
    assert rows[1]["accuracy"] is None
    assert plot(frame_of_records(rows)) == plot(rows)


@pytest.mark.parametrize("others", [[], BSP], ids=["alone", "beside others"])
def test_diverged_runs_are_counted(others: list[FigureRun]) -> None:
    written = words(timing([*others, run(0, None, 3), run(0, None, 3)]))
    assert "2/2" in written
    assert "accuracy (✕ diverged)" in written


def test_curves_have_a_line_each() -> None:
    written = words(curves([*BSP, *SWITCHED, *ASP_FIRST]))
    assert {"BSP", "ASP 50 %, BSP", "BSP 50 %, ASP"} <= set(written)


def test_switches_are_bars() -> None:
    alike = [
        replace(one, workers=2, under=how, switch_seconds=seconds)
        for how, seconds in (("", 0.001), ("restart", 1.5), ("restart", 2.5))
        for one in SWITCHED[:1]
    ]
    rows = overhead([*alike, *SWITCHED])
    assert [row["switch_percent_of_training"] for row in rows] == [0.1 / 60, 200 / 60]
    # Two values that lie 1 apart: 12.706 standard errors of 0.5.
    assert rows[1]["switch_seconds_half_width"] == pytest.approx(6.353, abs=1e-3)
    assert {"hot,", "restart,", "2 workers"} <= set(words(rows))
