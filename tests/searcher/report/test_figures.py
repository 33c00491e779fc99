"""The figures: what they draw of known numbers, and what they say where there is nothing."""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored import FINISHED, Made, add_imported, add_search, publish, record_of

from syncswitch.searcher.report import ReportData, figures, load_report
from syncswitch.searcher.report.drawing import Drawing, SwitchAxis, drawn
from syncswitch.searcher.report.page import accuracy_sentence, uses_figure_sentence
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.storage.records.use import whole_use
from syncswitch.storage.uses.store import record_use

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


def test_every_run_is_a_point_and_the_policy_a_star(finished: ReportData) -> None:
    drawing = figures.accuracy_by_switch(finished)
    marks = lines(drawing)
    assert sorted(marks["one run"][1]) == pytest.approx([0.949, 0.950, 0.951, 0.952])
    assert len(marks["diverged"][0]) == 1
    (axes,) = drawing.axes
    (means,) = axes.containers
    assert list(means[0].get_ydata()) == pytest.approx([0.950, 0.951])
    (whiskers,) = means[2]
    half = 12.7062 * 0.001
    for mean, ((_, low), (_, high)) in zip((0.950, 0.951), whiskers.get_segments(), strict=True):
        assert (low, high) == pytest.approx((mean - half, mean + half), rel=1e-4)
    low, high = axes.get_ylim()
    assert low < 0.94 < high < 0.951 + half, "the intervals of two runs are cut"
    x, y = marks["the policy: 50 %"]
    assert (x, y) == ([math.log2(50)], [pytest.approx(0.951)])
    assert {"target 0.9500", "least accepted 0.9400"} <= set(words(drawing))


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
    assert named == [
        "target",
        "BSP alone",
        "switch at 50 % (the policy)",
        "switch at 25 %, diverged",
    ]
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
    drawing = figures.training_time(finished)
    (axes,) = drawing.axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([100, 70])
    assert {"100 %", "70 %"} <= set(words(drawing))


def test_a_single_run_has_no_interval(database: Database) -> None:
    add_search(database, FINISHED[:3])
    (axes,) = figures.training_time(load_report(database, "generated")).axes
    assert len(axes.collections) == 1, "whiskers of the two runs with BSP alone"


def used(database: Database, *accuracies: float) -> ReportData:
    policy = publish(database, add_search(database))
    job = load_report(database, "generated").identity
    for seed, accuracy in enumerate(accuracies):
        spec = TrialSpec(job, policy.switch_percent, seed=seed)
        use = whole_use(policy, f"use-{seed}", record_of(Made(50.0, accuracy), spec))
        assert use is not None
        record_use(database, use)
    return load_report(database, "generated")


def test_later_uses_are_told_apart_by_what_they_kept(database: Database) -> None:
    data = used(database, 0.95, 0.90, 0.945)
    marks = lines(figures.later_uses(data))
    assert marks["kept"] == ([1, 3], pytest.approx([0.95, 0.945]))
    assert marks["not kept"] == ([2], [pytest.approx(0.90)])
    assert marks["switch that held"] == ([1, 2, 3], [math.log2(50)] * 3)
    assert uses_figure_sentence(data) == "2 of 3 later runs kept the accuracy."


def nothing(database: Database, _: Path) -> str:
    add_search(database, (Made(100.0, end="running"),))
    return "generated"


def imported(database: Database, folder: Path) -> str:
    return add_imported(database, folder)


def only_diverged(database: Database, _: Path) -> str:
    add_search(database, (Made(100.0, 0.1, diverged=True),))
    return "generated"


def under_way(database: Database, _: Path) -> str:
    add_search(database, (*FINISHED[:3], Made(50.0, end="running")))
    return "generated"


def known_target(database: Database, _: Path) -> str:
    info = add_search(database, FINISHED[2:], target_accuracy=0.95)
    publish(database, info, baseline_seconds=None, mean_accuracy=None, training_seconds=None)
    return "generated"


ALL_BUT_USES = {"accuracy_by_switch", "accuracy_over_time", "search_path", "training_time"}


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        (nothing, set()),
        (imported, ALL_BUT_USES - {"search_path"}),
        (only_diverged, {"accuracy_over_time", "search_path"}),
        (under_way, ALL_BUT_USES),
        (known_target, ALL_BUT_USES),
    ],
)
def test_a_figure_is_drawn_or_says_why_not(
    database: Database, tmp_path: Path, fill: Callable[[Database, Path], str], expected: set[str]
) -> None:
    data = load_report(database, fill(database, tmp_path))
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
    for draw in (figures.accuracy_by_switch, figures.training_time, figures.accuracy_over_time):
        with pytest.raises(UserError, match="1 complete run of recorded cannot be compared: im"):
            draw(only)


def test_what_is_missing_is_named(finished: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'syncswitch\[report\]'"):
        figures.training_time(finished)


def test_a_drawing_is_sound_and_says_what_it_is() -> None:
    drawing = Drawing("<Costs> & $a$ \\1", 'What "it" says')
    with drawn(drawing, 3.0) as (axes,):
        axes.plot([1, 2], [3, 4])
    root = ET.fromstring(drawing.svg)
    name = "{http://www.w3.org/2000/svg}"
    assert root.attrib["role"] == "img"
    assert [child.text for child in list(root)[:2]] == [drawing.title, drawing.description]
    assert [child.tag for child in list(root)[:2]] == [f"{name}title", f"{name}desc"]
    assert "width" not in root.attrib
    again = Drawing(drawing.title, drawing.description)
    with drawn(again, 3.0) as (axes,):
        axes.plot([1, 2], [3, 4])
    assert again == drawing
    assert again._repr_svg_() == drawing.svg


@given(st.lists(st.floats(0, 100), min_size=1, unique=True))
def test_switch_points_keep_their_order_on_the_axis(percents: list[float]) -> None:
    axis = SwitchAxis(percents)
    places = [axis.at(percent) for percent in sorted(percents)]
    assert places == sorted(places)


def test_no_first_protocol_at_all_has_a_place_of_its_own_on_the_axis() -> None:
    axis = SwitchAxis([100, 25, 0])
    assert axis.at(0) == axis.at(25) - 1
    drawing = Drawing("axis", "")
    with drawn(drawing, 3.0) as (axes,):
        axis.label(axes.xaxis, axes.set_xlim, "a $b$ protocol")
    written = words(drawing)
    assert {"0", "25", "100"} <= set(written)
    assert "switch point (% of the job in a $b$ protocol)" in written
