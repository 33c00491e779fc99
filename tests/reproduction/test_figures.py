"""The papers' figures: runs side by side, which of them each shows, and how it is drawn."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reproduction.figures import FIGURES, figure, figure_rows
from reproduction.plots import plot
from reproduction.program import main
from reproduction.record_frames import frame_of_records
from reproduction.runs import FigureRun
from reproduction.tables import (
    batch,
    compare,
    curves,
    generality,
    momentum,
    order,
    overhead,
    paper_answer,
    protocols,
    stragglers,
    summary,
    timing,
)
from syncswitch.storage.records.trial import Evaluation
from tests.failing import fails

ASP_FIRST = ("asp", "bsp")
SMALL, LARGE = "resnet32-cifar10-8", "resnet32-cifar10-16"


def test_the_first_table_comes_out_of_the_authors_runs(paper_url: str) -> None:
    bsp, switched, asp = figure_rows(paper_url, "summary", SMALL)
    assert [row["run"] for row in (bsp, switched, asp)] == ["BSP", "BSP 6.25 %, ASP", "ASP"]
    assert switched["times_as_fast"] == pytest.approx(5.09, abs=0.005)
    assert switched["points"] == pytest.approx(-0.05, abs=0.01)
    assert switched["points_above_asp"] == pytest.approx(2.64, abs=0.01)
    assert switched["times_the_time_of_asp"] == pytest.approx(1.30, abs=0.005)
    assert (asp["runs"], asp["times_the_time_of_asp"]) == (4, 1.0)


def test_with_16_workers_everything_below_the_half_diverges(paper_url: str) -> None:
    rows = figure_rows(paper_url, "timing", LARGE)
    assert {row["percent"]: row["diverged"] for row in rows} == {100: 0, 50: 0, 25: 3, 0: 3}
    _, answer, _ = figure_rows(paper_url, "summary", LARGE)
    assert answer["percent"] == 50


def test_a_figure_is_a_table_for_pandas(paper_url: str) -> None:
    table = figure(paper_url, "timing", SMALL)
    assert table["percent"].tolist() == [100, 50, 25, 12.5, 6.25, 3.125, 0]
    assert table.loc[table.run == "ASP", "seconds_to_target"].isna().all()
    curves = figure(paper_url, "curves", SMALL)
    assert list(curves) == ["workers", "cluster", "run", "worker_step", "seconds", "accuracy"]
    assert set(curves["run"]) == set(table["run"])
    assert curves["worker_step"].max() == 64_000


def test_another_accuracy_can_be_timed(paper_url: str) -> None:
    def reached(**options: Any) -> list[int]:
        return [row["reached"] for row in figure_rows(paper_url, "timing", SMALL, **options)]

    assert reached(target_accuracy=0.5) == [5, 5, 5, 5, 5, 4, 4]
    assert reached()[-1] == 0


def test_what_is_missing_is_said_with_the_command_that_makes_it(paper_url: str) -> None:
    with fails("input-invalid", f"python -m reproduction run stragglers {SMALL}"):
        figure_rows(paper_url, "stragglers", SMALL)
    with fails("input-invalid", f"no figure 'fig'; choose one of {', '.join(FIGURES)}"):
        figure_rows(paper_url, "fig", SMALL)


def test_a_drawing_is_made_anew_and_another_file_is_kept(paper_url: str, tmp_path: Path) -> None:
    def draw(name: str) -> int:
        arguments = ["show", "summary", SMALL, "-o", str(tmp_path / name)]
        return CliRunner().invoke(main, [*arguments, "--storage", paper_url]).exit_code

    (tmp_path / "notes.html").write_text("<p>notes</p>")
    assert [draw(name) for name in ("new.html", "new.html", "notes.html")] == [0, 0, 2]
    assert (tmp_path / "notes.html").read_text() == "<p>notes</p>"


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


BSP = (run(100, 0.90, 100), run(100, 0.92, 100))


def test_everything_is_compared_with_bsp_alone() -> None:
    runs = [*BSP, run(25, 0.92, 50), run(25, 0.94, 50), run(0, 0.80, 20)]
    found = {row.run: row for row in compare(runs)}
    bsp, switched, asp = found.values()
    assert list(found) == ["BSP", "BSP 25 %, ASP", "ASP"]
    assert switched.accuracy == pytest.approx(0.93)
    # Two values that lie 0.02 apart: 12.706 standard errors of 0.01.
    assert switched.accuracy_half_width == pytest.approx(0.12706, abs=1e-4)
    assert switched.points == pytest.approx(2.0)
    assert switched.times_as_fast == pytest.approx(2.0)
    assert (switched.target, switched.reached) == (pytest.approx(0.91), 2)
    assert switched.seconds_to_target == pytest.approx(25.0)
    # Of the BSP runs only one reaches its own mean, after 50 seconds.
    assert (bsp.reached, bsp.seconds_to_target) == (1, 50.0)
    assert switched.sooner == pytest.approx(2.0)
    assert (asp.reached, asp.seconds_to_target, asp.sooner) == (0, None, None)
    assert (asp.accuracy_half_width, asp.times_as_fast) == (None, pytest.approx(5.0))
    # A diverged run counts, and is in no mean.
    _, lost = compare([*BSP, run(0, None, 3), run(0, 0.8, 20)])
    assert (lost.runs, lost.diverged, lost.accuracy, lost.seconds) == (2, 1, 0.8, 20)
    (alone,) = compare([run(0, 0.8, 20)])
    assert (alone.points, alone.times_as_fast, alone.target, alone.reached) == (None, None, None, 0)


def test_clusters_and_conditions_are_kept_apart() -> None:
    others = [run(100, 0.9, 200, workers=16), run(100, 0.9, 150, under="elastic")]
    # One protocol alone is the same in every pair.
    found = compare([*BSP, run(0, 0.94, 100, protocols=ASP_FIRST), *others])
    assert [(row.workers, row.under, row.runs, row.times_as_fast) for row in found] == [
        (8, "", 3, 1.0),
        (8, "elastic", 1, pytest.approx(100 / 150)),
        (16, "", 1, 1.0),
    ]


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


ZERO, GLOBAL = "momentum_after_switch=zero", "batch_after_switch=global"


@pytest.mark.parametrize(
    ("table", "variant", "other"), [(momentum, ZERO, GLOBAL), (batch, GLOBAL, ZERO)]
)
def test_another_momentum_or_batch_is_shown_beside_the_job_as_it_is(
    table: Callable[..., list[dict[str, Any]]], variant: str, other: str
) -> None:
    usual = [run(100, 0.90, 100), run(25, 0.91, 50), run(0, 0.80, 20)]
    varied = replace(run(25, 0.88, 50), variant=variant)
    others = [
        replace(run(25, 0.95, 50), variant="batch_size=4"),
        replace(run(25, 0.93, 50), variant=other),
        run(25, 0.91, 50, under="elastic"),
        run(100, 0.90, 100, workers=16),
    ]
    rows = table([*usual, varied, *others])
    assert [(row["run"], row["variant"], row["accuracy"]) for row in rows] == [
        ("BSP", "", 0.90),
        ("BSP 25 %, ASP", "", 0.91),
        ("BSP 25 %, ASP", variant, 0.88),
    ]
    assert table([*usual, *others]) == []


SWITCHED = [run(50, 0.91, 60), run(50, 0.93, 60)]
BACKWARDS = [run(50, 0.85, 70, protocols=ASP_FIRST)]
SIXTEEN = [replace(one, workers=16) for one in [*BSP, *SWITCHED]]
DISTURBED = [replace(one, under="elastic, straggler:worker=1") for one in SWITCHED]
NO_MOMENTUM = [replace(one, variant=ZERO) for one in SWITCHED]


def words(table: Any) -> list[str]:
    """The words in a drawing, from top to bottom."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", plot(table).svg)


def test_a_cluster_is_shown_where_it_has_what_the_figure_is_about() -> None:
    backwards = [run(100, 0.9, 200, workers=4), run(50, 0.8, 90, workers=4, protocols=ASP_FIRST)]
    alone = [run(100, 0.9, 100, protocols=(name, "asp")) for name in ("bsp", "dssp:3", "ds-sync:2")]
    mixed = [replace(one, cluster="mixed") for one in alone]
    no_target = [run(50, 0.9, 60, workers=2)]
    runs = [*BSP, *SWITCHED, *backwards, *mixed, *no_target]

    def shown(rows: Sequence[dict[str, Any]]) -> set[tuple[int, str]]:
        return {(row["workers"], row["cluster"]) for row in rows}

    for table in (summary, timing, curves):
        assert shown(table(runs)) == {(8, ""), (4, "")}
    assert shown(order(runs)) == {(4, "")}
    assert shown(protocols(runs, "dssp")) == {(8, "mixed")}
    assert protocols(runs, "gba") == []
    # Where nothing can be compared with BSP, there is no better choice.
    assert shown(timing(no_target)) == {(2, "")}
    assert shown(stragglers([*BSP, *SWITCHED, *DISTURBED, *backwards])) == {(8, "")}


@pytest.mark.parametrize(
    ("table", "further", "written"),
    [
        (timing, [], {"BSP", "BSP 50 %, ASP"}),
        (timing, SIXTEEN, {"8 workers", "16 workers", "BSP", "BSP 50 %, ASP"}),
        (order, BACKWARDS, {"ASP first", "BSP first", "50 % in BSP", "100 % in BSP"}),
        (generality, SIXTEEN, {f"{of}{n} workers" for of in ("", "policy of ") for n in (8, 16)}),
        (stragglers, DISTURBED, {"elastic, stragglers", "undisturbed", "BSP", "BSP 50 %, ASP"}),
        (momentum, NO_MOMENTUM, {"BSP", "BSP 50 %, ASP", "BSP 50 %, ASP zero"}),
    ],
)
def test_what_is_compared_stands_beside_each_other(
    table: Callable[..., list[dict[str, Any]]], further: list[FigureRun], written: set[str]
) -> None:
    assert written <= set(words(table([*BSP, *SWITCHED, *further])))


def test_curves_go_from_bsp_to_asp_and_diverged_runs_are_counted() -> None:
    rows = curves([run(0, 0.8, 20), *BACKWARDS, *SWITCHED, *BSP])
    names = ["BSP", "ASP 50 %, BSP", "BSP 50 %, ASP", "ASP"]
    assert list(dict.fromkeys(row["run"] for row in rows)) == names
    assert set(names) <= set(words(rows))
    for others in ([], BSP):
        rows = timing([*others, run(0, None, 3), run(0, None, 3)])
        assert rows[-1]["accuracy"] is None
        assert {"2/2", "accuracy (✕ diverged)"} <= set(words(rows))
        assert plot(frame_of_records(rows)) == plot(rows)


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
