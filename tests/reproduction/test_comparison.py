"""Runs side by side, on numbers that are easy to check by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reproduction.runs import FigureRun
from reproduction.tables import Compared, compare, paper_answer
from syncswitch.storage.records.trial import Evaluation


def run(
    percent: float,
    accuracy: float | None,
    seconds: float,
    *,
    protocols: tuple[str, str] = ("bsp", "asp"),
    workers: int = 8,
    under: str = "",
) -> FigureRun:
    """Its accuracy is reached after half of its time."""
    tests = [(0.5, accuracy or 0.1), (1.0, accuracy or 0.1)]
    return FigureRun(
        workload="job",
        workers=workers,
        cluster="",
        total_worker_steps=100,
        protocols=protocols,
        percent=percent,
        under=under,
        seed=None,
        accuracy=accuracy,
        seconds=None if accuracy is None else seconds,
        curve=tuple(
            Evaluation(round(100 * part), seconds * part, value, 0.1) for part, value in tests
        ),
    )


def rows(*runs: FigureRun) -> dict[str, Compared]:
    return {row.run: row for row in compare(runs)}


BSP = (run(100, 0.90, 100), run(100, 0.92, 100))


def test_everything_is_compared_with_bsp_alone() -> None:
    found = rows(*BSP, run(25, 0.92, 50), run(25, 0.94, 50), run(0, 0.80, 20))
    assert list(found) == ["BSP", "BSP 25 %, ASP", "ASP"]
    switched = found["BSP 25 %, ASP"]
    assert switched.accuracy == pytest.approx(0.93)
    # Two values that lie 0.02 apart: 12.706 standard errors of 0.01.
    assert switched.accuracy_half_width == pytest.approx(0.12706, abs=1e-4)
    assert switched.points == pytest.approx(2.0)
    assert switched.times_as_fast == pytest.approx(2.0)
    assert (switched.target, switched.reached) == (pytest.approx(0.91), 2)
    assert switched.seconds_to_target == pytest.approx(25.0)
    # Of the BSP runs only one reaches its own mean, after 50 seconds.
    assert (found["BSP"].reached, found["BSP"].seconds_to_target) == (1, 50.0)
    assert switched.sooner == pytest.approx(2.0)
    asp = found["ASP"]
    assert (asp.reached, asp.seconds_to_target, asp.sooner) == (0, None, None)
    assert (asp.accuracy_half_width, asp.times_as_fast) == (None, pytest.approx(5.0))


def test_a_diverged_run_counts_and_is_in_no_mean() -> None:
    found = rows(*BSP, run(0, None, 3), run(0, 0.8, 20))["ASP"]
    assert (found.runs, found.diverged, found.accuracy, found.seconds) == (2, 1, 0.8, 20)
    alone = rows(*BSP, run(0, None, 3))["ASP"]
    assert (alone.accuracy, alone.seconds, alone.times_as_fast, alone.points) == (None,) * 4


def test_clusters_and_conditions_are_kept_apart() -> None:
    found = compare([*BSP, run(100, 0.9, 200, workers=16), run(100, 0.9, 150, under="elastic")])
    assert [(row.workers, row.under, row.times_as_fast) for row in found] == [
        (8, "", 1.0),
        (8, "elastic", pytest.approx(100 / 150)),
        (16, "", 1.0),
    ]


def test_one_protocol_alone_is_the_same_in_every_pair() -> None:
    found = compare([*BSP, run(0, 0.94, 100, protocols=("asp", "bsp"))])
    assert [(row.run, row.runs) for row in found] == [("BSP", 3)]


def test_without_bsp_nothing_is_compared() -> None:
    (found,) = compare([run(0, 0.8, 20)])
    assert (found.points, found.times_as_fast, found.target, found.reached) == (None, None, None, 0)


def test_the_target_may_be_given() -> None:
    (found,) = compare(BSP, target_accuracy=0.9)
    assert (found.target, found.reached) == (0.9, 2)


@pytest.mark.parametrize(
    ("points", "diverged", "expected"),
    [
        ((0.0, -0.5, -2.0), (0, 0, 0), 25.0),
        ((0.0, -2.0, 0.0), (0, 0, 0), 50.0),
        ((0.0, 0.0, 0.0), (0, 1, 0), 50.0),
        ((-1.1, 0.0, 0.0), (0, 0, 0), None),
    ],
)
def test_the_papers_search_halves_while_the_accuracy_is_kept(
    points: tuple[float, ...], diverged: tuple[int, ...], expected: float | None
) -> None:
    (row,) = compare([run(50, 0.9, 50)])
    found = [
        replace(row, percent=percent, points=lost, diverged=number)
        for percent, lost, number in zip((50.0, 25.0, 12.5), points, diverged, strict=True)
    ]
    answer = paper_answer([*found, replace(row, percent=0.0), replace(row, percent=100.0)])
    assert (None if answer is None else answer.percent) == expected
