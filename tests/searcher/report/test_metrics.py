"""A report of a job where less of its metric is better, and where tests measured more than it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from generated_trainer import identity
from stored import FINISHED, Made, add_search, publish

from syncswitch.searcher.report import ReportData, figures, load_report
from syncswitch.searcher.report.sections import sections_of
from syncswitch.searcher.report.tables.further import further_table
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import Evidence

LESS = {"metric_goal": "min", "metric_unit": "nats", "metric_lowest": 0.0, "metric_highest": None}
_BEST = 1.182


def losing(made: Made) -> Made:
    """A run whose loss is 0.231 where its accuracy was 0.951."""
    return replace(made, accuracy=made.accuracy - _BEST)


@pytest.fixture
def database(sqlite_url: str, our_tables: None) -> Iterator[Database]:
    with open_database(sqlite_url, create=False) as opened:
        yield opened


@pytest.fixture
def job() -> WorkloadIdentity:
    return identity(metric="val_loss", **LESS)


@pytest.fixture
def report(database: Database, job: WorkloadIdentity) -> ReportData:
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


def drawn(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def test_points_and_band_are_the_losses_themselves(report: ReportData) -> None:
    figure = figures.accuracy_by_switch(report)
    traces = drawn(figure)
    assert sorted(traces["one run"].y) == pytest.approx([0.230, 0.231, 0.232, 0.233])
    (top,) = traces["diverged (no val_loss)"].y
    assert top > 0.242
    means = traces["mean, 95 % interval"]
    assert list(means.y) == pytest.approx([0.232, 0.231])
    low, high = figure.layout.yaxis.range
    assert low < 0.230 < 0.242 < high
    assert figure.layout.yaxis.title.text.replace("<br>", " ") == (
        "converged val_loss in nats (less is better)"
    )
    band, target, most = figure.layout.shapes
    assert (band.y0, band.y1) == (pytest.approx(0.242), pytest.approx(0.232))
    assert (target.label.text, most.label.text) == (
        "target 0.2320 nats",
        "most accepted 0.2420 nats",
    )
    # What is worse is above, and so are its words.
    assert (target.label.yanchor, most.label.yanchor) == ("top", "bottom")


def test_an_interval_that_leaves_the_figure_does_so_on_its_own_side(report: ReportData) -> None:
    figure = figures.accuracy_by_switch(report)
    low, _ = figure.layout.yaxis.range
    deep = tuple(replace(one, upper_accuracy=-0.001) for one in report.switch_points)
    arrows = drawn(figures.accuracy_by_switch(replace(report, switch_points=deep)))
    below = arrows["the interval goes on"]
    assert (below.y[0], below.marker.symbol[0]) == (pytest.approx(low), "triangle-down")
    assert below.text[0] == "0.001 nats"


def test_the_curves_are_the_losses_themselves(report: ReportData) -> None:
    figure = figures.accuracy_over_time(report)
    values = [y for trace in figure.data for y in trace.y]
    assert min(values) == pytest.approx(0.230)
    assert figure.layout.shapes[0].y0 == pytest.approx(0.232)


def test_no_table_sentence_or_label_has_a_negative(report: ReportData) -> None:
    sections = {section.name: section for section in sections_of(report)}
    assert sections["accuracy"].title == "Val_loss against switch point"
    assert "at 0.2420 nats or less" in sections["accuracy"].words
    assert "plus 0.01 nats" in sections["accuracy"].words
    cells = [
        cell
        for section in sections.values()
        for table in section.tables
        for row in table.rows
        for cell in row
    ]
    assert [cell for cell in cells if cell.startswith("-0")] == []
    assert "0.2310 nats" in cells
    (first, *_) = sections["accuracy"].tables
    assert first.columns[3] == "val_loss"
    assert first.rows[0][3:6] == ("0.2320 nats", "0.2193 nats", "0.2447 nats")
    assert ("compared by", "val_loss in nats (less is better)") in sections["origin"].tables[
        -1
    ].rows


def test_further_metrics_have_a_table(database: Database) -> None:
    runs = [
        replace(one, further=(("loss", 0.5 + number), *((("AUC", 0.875),) if number else ())))
        for number, one in enumerate(FINISHED)
    ]
    add_search(database, runs)
    table = further_table(load_report(database, "generated"))
    assert table.columns == ("switch at", "runs", "loss", "AUC")
    assert table.rows == (("100 %", "2", "1", "0.875"), ("50 %", "2", "3", "0.875"))


def test_without_further_metrics_there_is_none(report: ReportData) -> None:
    assert further_table(report).rows == ()
