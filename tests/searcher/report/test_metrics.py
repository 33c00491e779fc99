"""A report of a job where less of its metric is better, and where tests measured more than it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generated_trainer import identity
from stored import FINISHED, Made, add_search, publish

from syncswitch.searcher.report import ReportData, figures, load_report
from syncswitch.searcher.report.page import further_table, sections_of, tables_of
from syncswitch.storage.database.engine import Database
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import Evidence

LESS = {"metric_goal": "min", "metric_unit": "nats", "metric_lowest": 0.0, "metric_highest": None}
_BEST = 1.182


def losing(made: Made) -> Made:
    """A run whose loss is 0.231 where its accuracy was 0.951."""
    return replace(made, accuracy=made.accuracy - _BEST)


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


def test_points_band_and_curves_are_the_losses_themselves(report: ReportData) -> None:
    (axes,) = figures.accuracy_by_switch(report).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    assert sorted(drawn["one run"]) == pytest.approx([0.230, 0.231, 0.232, 0.233])
    assert drawn["target 0.2320 nats"][0] == pytest.approx(0.232)
    assert drawn["most accepted 0.2420 nats"][0] == pytest.approx(0.242)
    (means,) = axes.containers
    assert list(means[0].get_ydata()) == pytest.approx([0.232, 0.231])
    assert " ".join(axes.get_ylabel().split()) == "converged val_loss in nats (less is better)"
    (curves,) = figures.accuracy_over_time(report).axes
    assert min(y for line in curves.get_lines() for y in line.get_ydata()) == pytest.approx(0.230)


def test_no_table_sentence_or_label_has_a_negative(report: ReportData) -> None:
    sections = {section.name: section for section in sections_of(report)}
    assert sections["accuracy"].title == "Val_loss against switch point"
    assert "0.2420 nats or less" in sections["accuracy"].words
    assert "plus 0.01 nats" in sections["accuracy"].words
    rows = [row for table in tables_of(report) for row in table.rows]
    assert [cell for row in rows for cell in row if cell.startswith("-0")] == []
    assert "0.2310 nats" in {cell for row in rows for cell in row}
    assert ("compared by", "val_loss in nats (less is better)") in rows


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
