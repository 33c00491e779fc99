"""The figures: what they draw of known numbers, and what they say where there is nothing."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored import FINISHED, Made, add_imported, add_search, publish

from syncswitch.searcher.report import ReportData, figures, load_report
from syncswitch.searcher.report.figures.style import SwitchAxis, figure_of
from syncswitch.searcher.report.headline import key_figures
from syncswitch.searcher.report.sentences import (
    accuracy_sentence,
    belief_sentence,
    phases_sentence,
    why_sentences,
)
from syncswitch.searcher.report.tables.figures import (
    accuracy_table,
    belief_table,
    phase_table,
    time_table,
)
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.trials.values import Fork

FIGURES = [getattr(figures, name) for name in figures.__all__]

Draw = Callable[[ReportData], Any]


@pytest.fixture
def database(sqlite_url: str, our_tables: None) -> Iterator[Database]:
    with open_database(sqlite_url, create=False) as database:
        yield database


def traces(figure: Any) -> dict[str, Any]:
    """By name."""
    return {trace.name: trace for trace in figure.data}


def test_every_run_is_a_point_and_the_policy_a_star(finished: ReportData) -> None:
    drawn = traces(figures.accuracy_by_switch(finished))
    assert sorted(drawn["one run"].y) == pytest.approx([0.949, 0.950, 0.951, 0.952])
    (bottom,) = drawn["diverged (no accuracy)"].y
    assert bottom < 0.94
    means = drawn["mean, 95 % interval"]
    assert list(means.y) == pytest.approx([0.950, 0.951])
    assert list(means.error_y.array) == pytest.approx([12.7062 * 0.001] * 2, rel=1e-4)
    star = drawn["the policy: 50 %"]
    assert (star.x[0], star.y[0]) == (means.x[1], pytest.approx(0.951))


def test_an_arrow_says_where_an_interval_leaves_the_figure(finished: ReportData) -> None:
    figure = figures.accuracy_by_switch(finished)
    low, high = figure.layout.yaxis.range
    arrows = traces(figure)["the interval goes on"]
    assert list(arrows.y) == pytest.approx([high, high])
    assert list(arrows.marker.symbol) == ["triangle-up"] * 2
    assert list(arrows.text) == ["0.9627", "0.9637"]
    deep = tuple(replace(one, lower_accuracy=0.0) for one in finished.switch_points)
    both = traces(figures.accuracy_by_switch(replace(finished, switch_points=deep)))
    assert list(both["the interval goes on"].y)[:2] == pytest.approx([high, low])
    assert both["the interval goes on"].marker.symbol[1] == "triangle-down"
    inside = tuple(replace(one, upper_accuracy=0.951) for one in finished.switch_points)
    drawn = traces(figures.accuracy_by_switch(replace(finished, switch_points=inside)))
    assert "the interval goes on" not in drawn


def test_the_band_is_what_is_accepted(finished: ReportData) -> None:
    shapes = figures.accuracy_by_switch(finished).layout.shapes
    assert (shapes[0].y0, shapes[0].y1) == (pytest.approx(0.94), pytest.approx(0.95))
    assert [shape.label.text for shape in shapes[1:]] == [
        "target 0.9500",
        "least accepted 0.9400",
    ]


def test_the_way_of_the_search_is_numbered_and_bracketed(finished: ReportData) -> None:
    figure = figures.search_path(finished)
    drawn = traces(figure)
    assert list(drawn["measures the target"].x) == [1, 2]
    assert list(drawn["keeps the accuracy"].x) == [4]
    assert list(drawn["loses too much"].x) == [5]
    assert list(drawn["loses too much"].text) == ["diverged"]
    upper, lower = figure.data[:2]
    ticks = dict(zip(figure.layout.yaxis.ticktext, figure.layout.yaxis.tickvals, strict=True))
    assert (lower.y[-1], upper.y[-1]) == (ticks["25"], ticks["50"])


def test_what_was_believed_of_each_switch_point_is_drawn_after_each_run(
    database: Database,
) -> None:
    add_search(database, FINISHED[:3], strategy="adaptive")
    data = load_report(database, "generated")
    figure = figures.beliefs(data)
    (cells,) = figure.data
    assert data.why is not None
    assert figure.layout.yaxis.ticktext == ("25", "50", "<b>75</b>", "100")
    assert [list(row) for row in zip(*cells.z, strict=True)] == [
        [pytest.approx(100 * one.good_probability) for one in run.beliefs] for run in data.why.runs
    ]
    frames = [(frame.x0 + frame.x1, frame.y0 + frame.y1) for frame in figure.layout.shapes]
    assert frames == [pytest.approx((2, 6)), pytest.approx((4, 2))]
    assert cells.text[3][1] == "100 %, after run 2 (50 %: 0.9520)"
    table = belief_table(data)
    assert table.columns == ("run", "switch at", "accuracy", "25 %", "50 %", "75 %", "100 %")
    assert [row[:3] for row in table.rows] == [("1", "100 %", "0.9510"), ("2", "50 %", "0.9520")]
    assert {row[6] for row in table.rows} == {"100 %"}


def test_what_a_search_says_of_its_answer_says_it_of_one_without_a_policy(
    database: Database,
) -> None:
    info = add_search(database, FINISHED[:3], strategy="adaptive")
    under_way = load_report(database, "generated")
    assert "One more run with the switch at 75 % ends between" in belief_sentence(under_way)
    publish(database, info)
    assert load_report(database, "generated").why == under_way.why
    (untried, *changes) = why_sentences(under_way)
    assert untried.startswith("Never tried: 25 % (")
    assert untried.endswith(": not yet.")
    assert all("would move the answer to" in change for change in changes)


def test_nothing_is_believed_where_the_first_protocol_alone_diverged(database: Database) -> None:
    runs = (Made(100.0, 0.1, diverged=True),) * 4
    add_search(database, runs, strategy="adaptive", trainer="command")
    data = load_report(database, "generated")
    assert data.why is None
    assert why_sentences(data) == []
    with pytest.raises(UserError, match="diverged"):
        figures.beliefs(data)


def test_an_evaluation_has_nothing_to_explain(database: Database) -> None:
    add_search(database, [Made(50.0)], study="compared", strategy="comparison")
    data = load_report(database, "generated", study="compared")
    with pytest.raises(UserError, match="nothing is looked for here"):
        figures.beliefs(data)


def test_titles_are_broken_where_their_axis_ends() -> None:
    long = "switch point (% of the job in a protocol with a long name)"
    figure = figure_of([], x={"title": long}, y={"title": "short", "domain": [0.5, 1]}, height=300)
    assert figure.layout.xaxis.title.text == (
        "switch point (% of the job in a<br>protocol with a long name)"
    )
    assert figure.layout.yaxis.title.text == "short"
    figure = figure_of([], x={}, y={"title": long, "domain": [0.5, 1]}, height=350)
    assert max(map(len, figure.layout.yaxis.title.text.split("<br>"))) <= 16


def test_curves_are_those_of_the_first_protocol_the_policy_and_the_earliest_switch(
    finished: ReportData,
) -> None:
    shown = [trace for trace in figures.accuracy_over_time(finished).data if trace.showlegend]
    assert [trace.name for trace in shown] == [
        "BSP alone",
        "switch at 50 % (the policy),<br>about 1.43 times as fast",
        "switch at 25 %, diverged",
    ]
    assert shown[0].x[-1] == pytest.approx(100)
    marks = [trace for trace in figures.accuracy_over_time(finished).data if trace.name == "switch"]
    assert [mark.x[0] for mark in marks] == pytest.approx([50, 50, 25])


@pytest.mark.parametrize(
    ("accuracies", "thick"),
    [((0.93, 0.94), [0.93, 0.94]), ((0.95, 0.91, 0.94), [0.94]), ((0.94, 0.94), [0.94, 0.94])],
)
def test_thick_are_the_curves_in_the_middle(
    database: Database, accuracies: tuple[float, ...], thick: list[float]
) -> None:
    add_search(database, [Made(100.0, accuracy) for accuracy in accuracies])
    drawn = figures.accuracy_over_time(load_report(database, "generated")).data
    assert [trace.y[-1] for trace in drawn if trace.line.width > 2] == pytest.approx(thick)
    assert [trace.name for trace in drawn if trace.showlegend] == ["BSP alone"]


def test_training_times_are_relative_to_the_first_protocol_alone(finished: ReportData) -> None:
    bars, whiskers, targets = figures.training_time(finished).data
    assert list(bars.x) == ["100", "50"]
    assert list(bars.y) == pytest.approx([100, 70])
    assert list(bars.text) == ["100 %", "70 %"]
    assert list(whiskers.x) == ["100", "50"]
    first_test = finished.runs[0].whole
    assert first_test is not None
    assert list(targets.x) == ["100", "50", "50"]
    assert targets.y[0] == pytest.approx(first_test.evaluations[0].elapsed_seconds)
    assert bars.hovertext[1] == "70.0 s, 1.43 times as fast"


def test_how_much_faster_each_switch_point_is_has_its_interval(database: Database) -> None:
    runs = [
        Made(100.0, 0.95),
        Made(100.0, 0.95),
        Made(50.0, 0.94),
        Made(50.0, 0.96),
        Made(0.0, 0.9),
    ]
    add_search(database, runs, target_accuracy=0.95)
    data = load_report(database, "generated")
    slower = replace(data.runs[0].trial, training_seconds=110.0)
    data = replace(data, runs=(replace(data.runs[0], trial=slower), *data.runs[1:]))
    half = 2.92 * math.sqrt(math.log(1.1) ** 2 / 2 / 2 * (1 / 2 + 1 / 2))
    low, high = 1.5 * math.exp(-half), 1.5 * math.exp(half)
    table = time_table(data)
    assert table.columns == (
        *("switch at", "seconds (95 %)", "time / BSP", "times as fast (90 %)"),
        *("seconds to the target (95 %)", "reached by", "time / ASP"),
    )
    assert table.rows[1][3] == f"1.50 ({low:.2f} to {high:.2f})"
    assert [row[5] for row in table.rows] == ["2 of 2 runs", "1 of 2 runs", "0 of 1 run"]
    assert [row[6] for row in table.rows] == ["2.62", "1.75", "1.00"]
    assert accuracy_table(data).columns[-1] == "better than ASP"
    assert [row[-1] for row in accuracy_table(data).rows] == ["+0.0500", "+0.0500", "+0.0000"]


def test_a_single_run_has_no_interval(database: Database) -> None:
    add_search(database, FINISHED[:3])
    data = load_report(database, "generated")
    _, whiskers, _ = figures.training_time(data).data
    assert list(whiskers.x) == ["100"]
    assert accuracy_table(data).rows[1] == ("50 %", "1", "0", "0.9520", "-", "-")
    assert time_table(data).rows[1][:3] == ("50 %", "70.0", "0.70")


def test_the_cost_is_that_of_each_switch_point(finished: ReportData) -> None:
    drawn = traces(figures.search_cost(finished))
    assert list(drawn["trained for the answer"].x) == pytest.approx([200, 140, 55])


def test_the_lines_cross_where_the_search_is_paid_back(finished: ReportData) -> None:
    without, with_search, crossing = figures.payback(finished).data
    times = crossing.x[0]
    assert times == pytest.approx(395 / 30)
    for line in (without, with_search):
        slope = (line.y[1] - line.y[0]) / line.x[1]
        assert line.y[0] + slope * times == pytest.approx(crossing.y[0])


def test_phases_have_throughput_and_staleness(finished: ReportData) -> None:
    above = [trace for trace in figures.phases(finished).data if trace.yaxis == "y"]
    below = [trace for trace in figures.phases(finished).data if trace.yaxis == "y2"]
    assert [list(trace.y) for trace in above] == [
        pytest.approx([30, 30, 30]),
        pytest.approx([75, 75]),
    ]
    assert [list(trace.y) for trace in below][1] == pytest.approx([3, 3])


def test_nobody_counted_staleness_so_there_is_no_room_for_it(finished: ReportData) -> None:
    runs = tuple(
        replace(run, trial=replace(run.trial, phases=tuple(map(_uncounted, run.trial.phases))))
        for run in finished.runs
    )
    figure = figures.phases(replace(finished, runs=runs))
    assert {trace.yaxis for trace in figure.data} == {"y"}


def test_what_a_run_did_not_train_itself_is_pale(database: Database) -> None:
    fork = Made(50.0, fork=Fork(0, 50.0), inherited_seconds=50.0)
    add_search(database, [Made(100.0), fork])
    data = load_report(database, "generated")
    first, second, *_ = figures.phases(data).data
    assert list(first.x) == ["100", "50"]
    assert list(first.y) == pytest.approx([30, 30])
    assert list(first.marker.opacity) == [1.0, 0.4]
    assert list(second.marker.opacity) == [1.0]
    assert [row[2] for row in phase_table(data).rows] == ["1", "1 (shared)", "1"]
    assert "Pale ones were measured by other runs, whose start these share." in phases_sentence(
        data
    )


def _uncounted(phase: Any) -> Any:
    return replace(phase, mean_staleness=None, max_staleness=None)


def test_events_are_marked_on_the_line_of_their_run(finished: ReportData) -> None:
    span, *marks = figures.events(finished).data
    assert list(span.x) == pytest.approx([0, 70])
    assert [mark.name for mark in marks] == ["injected", "detected", "removed"]
    assert marks[1].text == ("worker 3 is &lt;b&gt;slow&lt;/b&gt;",)


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


@pytest.mark.parametrize(
    ("fill", "drawn"),
    [
        (nothing, set()),
        (imported, {"accuracy_by_switch", "accuracy_over_time", "phases", "training_time"}),
        (only_diverged, {"accuracy_over_time", "phases", "search_cost", "search_path"}),
        (
            under_way,
            {
                *("accuracy_by_switch", "accuracy_over_time", "phases", "search_cost"),
                *("search_path", "training_time"),
            },
        ),
        (
            known_target,
            {
                *("accuracy_by_switch", "accuracy_over_time", "phases", "search_cost"),
                *("search_path", "training_time"),
            },
        ),
    ],
)
def test_a_figure_is_drawn_or_says_why_not(
    database: Database, tmp_path: Path, fill: Callable[[Database, Path], str], drawn: set[str]
) -> None:
    data = load_report(database, fill(database, tmp_path))
    found, reasons = set(), []
    for draw in FIGURES:
        try:
            figure = draw(data)
        except UserError as error:
            reasons.append(str(error))
        else:
            assert any(trace.x is not None and len(trace.x) for trace in figure.data)
            found.add(draw.__name__)
    assert found == drawn, reasons
    assert all(reason and "\n" not in reason for reason in reasons)


def test_imported_runs_without_a_switch_point_are_not_said_to_be_under_way(
    database: Database, tmp_path: Path
) -> None:
    data = load_report(database, add_imported(database, tmp_path))
    assert "Left out: 1 complete run, imported without" in accuracy_sentence(data)
    unplaced = replace(data.runs[1], trial=replace(data.runs[1].trial, candidate_percent=None))
    only = replace(data, runs=(unplaced,), switch_points=())
    for draw in (figures.accuracy_by_switch, figures.training_time, figures.phases):
        with pytest.raises(UserError, match="1 complete run of recorded cannot be compared, for"):
            draw(only)


def test_a_search_that_takes_too_many_trainings_to_pay_back_never_does(
    finished: ReportData,
) -> None:
    assert finished.policy is not None
    policy = replace(finished.policy.policy, training_seconds=99.99)
    data = replace(finished, policy=replace(finished.policy, policy=policy))
    assert ("never", "trainings until the search has paid off") in key_figures(data)
    with pytest.raises(UserError, match="is not paid back"):
        figures.payback(data)


def test_what_is_missing_is_named(finished: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(UserError, match=r"pip install 'syncswitch\[report\]'"):
        figures.payback(finished)


@given(st.lists(st.floats(0, 100), min_size=1, unique=True))
def test_switch_points_keep_their_order_on_the_axis(percents: list[float]) -> None:
    axis = SwitchAxis(percents)
    places = [axis.at(percent) for percent in sorted(percents)]
    assert places == sorted(places)
    low, high = axis.axis("")["range"]
    assert all(low < place < high for place in places)


def test_no_first_protocol_at_all_has_a_place_of_its_own_on_the_axis() -> None:
    axis = SwitchAxis([100, 25, 0])
    assert axis.at(0) == axis.at(25) - 1
    assert axis.axis("")["ticktext"] == ["0", "25", "100"]
