"""The figures: what they draw of known numbers, and what they say where there is nothing."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from generated_trainer import identity
from stored import FINISHED, Made, add_imported, add_search, add_use, publish

from syncswitch.searcher.report import figures
from syncswitch.searcher.report.data import ReportData, load_report
from syncswitch.searcher.report.drawing import SECOND, Drawing, drawn, label_switches
from syncswitch.searcher.report.page import (
    accuracy_sentence,
    job_facts,
    sections_of,
    uses_figure_sentence,
    version_rows,
)
from syncswitch.searcher.report.scales import SwitchScale
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.policy import Evidence
from tests.failing import fails

FIGURES = [getattr(figures, name) for name in figures.__all__]


def lines(drawing: Drawing) -> dict[str, tuple[list[float], list[float]]]:
    """What is drawn under each name."""
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for axes in drawing.axes
        for line in axes.get_lines()
    }


def words(drawing: Drawing) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawing.svg)


def edges(axes: Any) -> list[str]:
    """What is written of runs outside of the axis, from the left."""
    written = [text for text in axes.texts if text.get_color() == SECOND]
    return [text.get_text() for text in sorted(written, key=lambda text: text.xy[0])]


def test_every_run_is_a_point_and_the_policy_a_star(finished: ReportData) -> None:
    drawing = figures.accuracy_by_switch(finished)
    marks = lines(drawing)
    assert sorted(marks["one run"][1]) == pytest.approx([0.949, 0.950, 0.951, 0.952])
    axes, _ = drawing.axes
    assert edges(axes) == ["diverged"]
    (means,) = axes.containers
    assert list(means[0].get_ydata()) == pytest.approx([0.950, 0.951])
    (whiskers,) = means[2]
    half = 12.7062 * 0.001
    for mean, ((_, low), (_, high)) in zip((0.950, 0.951), whiskers.get_segments(), strict=True):
        assert (low, high) == pytest.approx((mean - half, mean + half), rel=1e-4)
    assert axes.get_ylim() == pytest.approx((0.93546, 0.9545)), "the intervals of two runs are cut"
    x, y = marks["the policy: 50 %"]
    assert (x, y) == ([math.log2(50)], [pytest.approx(0.951)])
    assert {"target 0.9500", "least accepted 0.9400"} <= set(words(drawing))


def test_a_run_that_failed_is_marked_at_the_edge(database: Database) -> None:
    add_search(database, [*FINISHED[:4], Made(12.5, 0.15), Made(12.5, 0.147), Made(0.0, 0.1)])
    above, below = figures.accuracy_by_switch(load_report(database, "generated")).axes
    assert edges(above) == ["3 runs: 0.1 to 0.15"]
    low, high = above.get_ylim()
    assert 0.93 < low < 0.94 < 0.95 < high < 0.96
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["0", "12.5", "25", "50", "100"]


def test_the_way_of_the_search_is_numbered_and_bracketed(finished: ReportData) -> None:
    drawing = figures.search_path(finished)
    marks = lines(drawing)
    assert marks["measures the target"][0] == [1, 2]
    assert marks["keeps the accuracy"][0] == [4]
    assert marks["loses too much"] == ([5], [math.log2(25)])
    assert "diverged" in words(drawing)
    (bracket,) = drawing.axes[0].collections
    last = [y for x, y in bracket.get_paths()[0].vertices if x == pytest.approx(5.5)]
    assert (min(last), max(last)) == (math.log2(25), math.log2(50))


def test_curves_are_those_of_the_first_protocol_the_policy_and_the_earliest_switch(
    finished: ReportData,
) -> None:
    curves = lines(figures.accuracy_over_time(finished))
    named = [name for name in curves if not name.startswith("_")]
    switches = ["switch at 50 % (the policy)", "switch at 25 %, diverged"]
    assert named == ["target", "BSP alone", *switches]
    assert curves["BSP alone"][0][-1] == pytest.approx(100)
    (axes,) = figures.accuracy_over_time(finished).axes
    marks = [line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() == "D"]
    assert marks == pytest.approx([50, 25])


def test_thick_is_the_curve_in_the_middle(database: Database) -> None:
    add_search(database, [Made(100.0, accuracy) for accuracy in (0.95, 0.91, 0.94)])
    (axes,) = figures.accuracy_over_time(load_report(database, "generated")).axes
    thick = [line.get_ydata()[-1] for line in axes.get_lines() if line.get_linewidth() > 2]
    assert thick == [0.94]


def test_training_times_are_relative_to_the_first_protocol_alone(finished: ReportData) -> None:
    drawing = figures.accuracy_by_switch(finished)
    _, axes = drawing.axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([100, 70])
    assert {"100 %", "70 %"} <= set(words(drawing))
    assert len(axes.collections) == 2, "whiskers"
    single = replace(finished, runs=finished.runs[:3])
    _, axes = figures.accuracy_by_switch(single).axes
    assert len(axes.collections) == 1, "a single run has none"


def test_later_uses_are_told_apart_by_what_they_kept(database: Database) -> None:
    policy = publish(database, add_search(database))
    for seed, accuracy in enumerate((0.95, 0.90, 0.945)):
        add_use(database, policy, seed, Made(50.0, accuracy))
    data = load_report(database, "generated")
    marks = lines(figures.later_uses(data))
    assert marks["kept"] == ([1, 3], pytest.approx([0.95, 0.945]))
    assert marks["not kept"] == ([2], [pytest.approx(0.90)])
    assert marks["switch that held"] == ([1, 2, 3], [math.log2(50)] * 3)
    assert uses_figure_sentence(data) == "2 of 3 later runs kept the accuracy."


@pytest.mark.parametrize("runs", [1, 3, 30])
def test_later_uses_are_numbered_from_1_to_the_last(database: Database, runs: int) -> None:
    policy = publish(database, add_search(database))
    for seed in range(runs):
        add_use(database, policy, seed, Made(50.0, 0.15 if seed == 1 else 0.95))
    above, below = figures.later_uses(load_report(database, "generated")).axes
    assert below.get_xlim() == (0.5, runs + 0.5)
    assert below.get_xticks()[[0, -1]].tolist() == [1, runs]
    assert [tick.get_text() for tick in below.get_yticklabels()] == ["25", "50", "100"]
    assert edges(above) == ["0.15"] * (runs > 1)


ALL_BUT_USES = {"accuracy_by_switch", "accuracy_over_time", "search_path"}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([Made(100.0, end="running")], set()),
        ([], ALL_BUT_USES - {"search_path"}),
        ([Made(100.0, 0.1, diverged=True)], {"accuracy_over_time", "search_path"}),
        ([*FINISHED[:3], Made(50.0, end="running")], ALL_BUT_USES),
        (FINISHED[2:], ALL_BUT_USES),
    ],
    ids=["nothing", "imported", "only diverged", "under way", "known target"],
)
def test_a_figure_is_drawn_or_says_why_not(
    database: Database, tmp_path: Path, runs: Sequence[Made], expected: set[str]
) -> None:
    if not runs:
        add_imported(database, tmp_path)
    elif runs == FINISHED[2:]:
        info = add_search(database, runs, target_accuracy=0.95)
        publish(database, info, baseline_seconds=None, mean_accuracy=None, training_seconds=None)
    else:
        add_search(database, runs)
    data = load_report(database, "generated" if runs else "recorded")
    found, reasons = set(), []
    for draw in FIGURES:
        try:
            drawing = draw(data)
        except UserError as error:
            reasons.append(str(error))
        else:
            assert words(drawing)
            found.add(draw.__name__)
    assert found == expected, reasons
    assert all(reason and "\n" not in reason for reason in reasons)


def test_imported_runs_without_a_switch_point_are_not_said_to_be_under_way(
    database: Database, tmp_path: Path
) -> None:
    data = load_report(database, add_imported(database, tmp_path))
    assert "Left out: 1 complete run, imported without" in accuracy_sentence(data)
    unplaced = replace(data.runs[1], trial=replace(data.runs[1].trial, candidate_percent=None))
    only = replace(data, runs=(unplaced,))
    for draw in (figures.accuracy_by_switch, figures.accuracy_over_time):
        with fails("nothing-recorded"):
            draw(only)


def test_a_drawing_is_sound_and_says_what_it_is() -> None:
    scale = SwitchScale([100, 25, 0])
    drawing, again = (Drawing("<Costs> & $a$ \\1", 'What "it" says') for _ in range(2))
    for one in (drawing, again):
        with drawn(one, 3.0) as (axes,):
            label_switches(axes.xaxis, scale, "% in a $b$ protocol")
    root = ET.fromstring(drawing.svg)
    name = "{http://www.w3.org/2000/svg}"
    assert root.attrib["role"] == "img"
    assert [child.text for child in list(root)[:2]] == [drawing.title, drawing.description]
    assert [child.tag for child in list(root)[:2]] == [f"{name}title", f"{name}desc"]
    assert "width" not in root.attrib
    assert again == drawing
    assert again._repr_svg_() == drawing.svg
    written = words(drawing)
    assert {"0", "25", "50", "100", "% in a $b$ protocol"} <= set(written)


LESS = {"metric_goal": "min", "metric_unit": "nats", "metric_lowest": 0.0, "metric_highest": None}
_BEST = 1.182


def losing(made: Made) -> Made:
    """A run whose loss is 0.231 where its accuracy was 0.951."""
    return replace(made, accuracy=made.accuracy - _BEST)


@pytest.fixture
def report(database: Database) -> ReportData:
    job = identity(metric="val_loss", **LESS)
    info = add_search(database, [losing(one) for one in FINISHED], job=job)
    publish(
        database,
        info,
        metric="val_loss",
        **LESS,
        target_accuracy=0.95 - _BEST,
        mean_accuracy=0.951 - _BEST,
        evidence=(Evidence(info.study, 0, 100.0, 0, 0.951 - _BEST, False, 100.0),),
    )
    return load_report(database, "generated")


def test_no_point_table_sentence_or_label_has_a_negative(report: ReportData) -> None:
    axes, _ = figures.accuracy_by_switch(report).axes
    assert edges(axes) == ["diverged"]
    assert axes.texts[0].xy[1] == 1.0, "above, as less is better"
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    assert sorted(drawn["one run"]) == pytest.approx([0.230, 0.231, 0.232, 0.233])
    assert drawn["target 0.2320 nats"][0] == pytest.approx(0.232)
    assert drawn["most accepted 0.2420 nats"][0] == pytest.approx(0.242)
    (means,) = axes.containers
    assert list(means[0].get_ydata()) == pytest.approx([0.232, 0.231])
    assert " ".join(axes.get_ylabel().split()) == "converged val_loss in nats (less is better)"
    (curves,) = figures.accuracy_over_time(report).axes
    assert min(y for line in curves.get_lines() for y in line.get_ydata()) == pytest.approx(0.230)

    sections = {section.name: section for section in sections_of(report)[0]}
    assert sections["switches"].title == "Val_loss and time by switch point"
    assert "0.2420 nats or less" in sections["switches"].words
    assert "up to 0.01 nats more than the target" in sections["switches"].words
    two = replace(report, versions=report.versions * 2)
    assert [version["val_loss"] for version in version_rows(two)] == ["0.2310 nats"] * 2
    assert ("compared by", "val_loss in nats (less is better)") in job_facts(report)
