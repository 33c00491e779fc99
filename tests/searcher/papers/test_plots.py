"""What stands where in the drawings of the papers' figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.searcher.papers.plots import plot
from syncswitch.searcher.papers.runs import FigureRun
from syncswitch.searcher.papers.tables import (
    curves,
    generality,
    momentum,
    order,
    overhead,
    stragglers,
    timing,
)
from syncswitch.storage.queries.record_frames import frame_of_records
from tests.searcher.papers.test_comparison import run

BSP = [run(100, 0.90, 100), run(100, 0.92, 100)]
SWITCHED = [run(50, 0.91, 60), run(50, 0.93, 60)]
ASP_FIRST = [run(50, 0.85, 70, protocols=("asp", "bsp"))]
LARGE = [replace(one, workers=16) for one in [*BSP, *SWITCHED]]
DISTURBED = [replace(one, under="elastic, straggler:worker=1") for one in SWITCHED]
NO_MOMENTUM = [replace(one, variant="momentum_after_switch=zero") for one in SWITCHED]


def shown(table: Any) -> list[tuple[str, list[str], list[float | None]]]:
    """Of each series its name, its places and its accuracies."""
    dots = [trace for trace in plot(table).data if trace.yaxis is None and trace.mode == "markers"]
    return [(trace.name, list(trace.x), list(trace.y)) for trace in dots]


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
    assert sorted((name, places) for name, places, _ in shown(rows)) == expected


def test_a_table_for_pandas_is_drawn_like_its_rows() -> None:
    rows = timing([*BSP, run(0, None, 3)])
    assert rows[1]["accuracy"] is None
    assert plot(frame_of_records(rows)).to_dict() == plot(rows).to_dict()


def test_times_and_times_to_the_target_are_below() -> None:
    below = [trace for trace in plot(timing([*BSP, *SWITCHED])).data if trace.yaxis == "y2"]
    training, waits = below
    assert (training.type, list(training.y)) == ("bar", [100, 60])
    # One run with BSP alone, and both others, reach the mean of BSP halfway.
    assert (waits.type, list(waits.y)) == ("scatter", [50, 30])


@pytest.mark.parametrize("others", [[], BSP], ids=["alone", "beside others"])
def test_diverged_runs_are_counted_at_the_bottom(others: list[FigureRun]) -> None:
    drawn = plot(timing([*others, run(0, None, 3), run(0, None, 3)]))
    (marks,) = (trace for trace in drawn.data if trace.name and trace.text is not None)
    assert marks.text[-1] == "2 of 2 diverged"
    low, high = drawn.layout.yaxis.range
    assert low <= marks.y[-1] <= high
    assert all(y is None for y in marks.y[:-1])


def test_words_on_diverged_runs_have_room_beside_each_other() -> None:
    lost = [replace(run(50, None, 3), workers=size) for size in (8, 16)]
    drawn = plot(timing([*BSP, *LARGE[:2], *lost, lost[0]]))
    marks = {trace.name: trace.text[-1] for trace in drawn.data if trace.text is not None}
    assert marks == {"8 workers": "2/2", "16 workers": "1/1"}
    assert drawn.layout.yaxis.title.text == "accuracy (x diverged)"


def test_curves_have_a_line_each() -> None:
    drawn = plot(curves([*BSP, *SWITCHED, *ASP_FIRST]))
    assert [(trace.name, trace.line.dash) for trace in drawn.data] == [
        ("BSP", "solid"),
        ("ASP 50 %, BSP", "dot"),
        ("BSP 50 %, ASP", "solid"),
    ]


def test_switches_are_bars() -> None:
    alike = [
        replace(one, workers=2, under=how, switch_seconds=seconds)
        for how, seconds in (("", 0.001), ("restart", 1.5), ("restart", 2.5))
        for one in SWITCHED[:1]
    ]
    rows = overhead([*alike, *SWITCHED])
    assert [row["switch_percent_of_training"] for row in rows] == [0.1 / 60, 200 / 60]
    drawn = plot(rows)
    # Two values that lie 1 apart: 12.706 standard errors of 0.5.
    assert drawn.data[1].error_y.array == (pytest.approx(6.353, abs=1e-3),)
    assert [list(trace.x) for trace in drawn.data] == [["hot, 2 workers"], ["restart, 2 workers"]]
    assert [list(trace.y) for trace in drawn.data] == [[0.001], [2.0]]
