"""Several searches, versions or jobs on one page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_line import error_line
from generated_trainer import identity
from stored import FINISHED, STUDY, Made, add_search, publish

from syncswitch.searcher.cli.main import main
from syncswitch.searcher.report import ReportData, load_report
from syncswitch.searcher.report.comparison import figures
from syncswitch.searcher.report.comparison.page import comparison_page_of
from syncswitch.searcher.report.comparison.sides import sides_of
from syncswitch.searcher.report.comparison.tables import difference_table, equal_facts
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import UserError

LARGER = identity(workers=8)
SECOND_STUDY = "generated-2"
RUNS = (Made(100.0, 0.96), Made(100.0, 0.96), Made(25.0, 0.955), Made(25.0, 0.955))


@pytest.fixture
def database(sqlite_url: str, our_tables: None) -> Iterator[Database]:
    """A job with two searches and their policies, and the same job on a larger cluster."""
    with open_database(sqlite_url, create=False) as database:
        publish(database, add_search(database))
        second = add_search(database, RUNS, study=SECOND_STUDY)
        publish(database, second, switch_percent=25.0, mean_accuracy=0.955, training_seconds=55.0)
        add_search(database, FINISHED, job=LARGER, study="generated-8")
        yield database


@pytest.fixture
def versions(database: Database) -> list[ReportData]:
    return [load_report(database, identity().fingerprint, version=one) for one in ("1", "current")]


def report(url: str, *arguments: str | Path) -> Result:
    command = ["report", *map(str, arguments), "--storage", url]
    return CliRunner().invoke(main, command, prog_name="syncswitch-search")


def test_a_version_comes_with_the_search_that_found_it(versions: list[ReportData]) -> None:
    old, new = versions
    assert old.answer is not None
    assert new.answer is not None
    assert (old.answer.version, old.answer.switch_percent) == (1, 50)
    assert (new.answer.version, new.answer.switch_percent) == (2, 25)
    assert old.search is not None
    assert new.search is not None
    assert (old.search.study, new.search.study) == (STUDY, SECOND_STUDY)


def test_sides_are_called_by_what_tells_them_apart(
    database: Database, versions: list[ReportData]
) -> None:
    larger = load_report(database, LARGER.fingerprint)
    assert [one.name for one in sides_of(versions)] == ["A: version 1", "B: version 2"]
    assert [one.name for one in sides_of([versions[0], larger])] == ["A: 4 workers", "B: 8 workers"]
    assert [one.name for one in sides_of([*versions, larger])] == [
        "A: 4 workers, version 1",
        "B: 4 workers, version 2",
        "C: 8 workers, no policy",
    ]
    assert [one.name for one in sides_of([larger, larger])] == ["A", "B"]


def test_only_what_differs_is_listed(versions: list[ReportData]) -> None:
    sides = sides_of(versions)
    table = difference_table(sides)
    assert table.columns == ("", "A", "B")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["accuracy with the policy"] == ("0.9510", "0.9550")
    assert rows["times as fast as without (90 %)"] == ("1.43", "1.82")
    assert rows["a training with the policy, s"] == ("70.0", "55.0")
    assert rows["runs of the search"] == ("5", "4")
    assert rows["switch at"] == ("50 %", "25 %")
    assert rows["search"] == (STUDY, SECOND_STUDY)
    equal = equal_facts(sides)
    assert {"workload", "fingerprint", "threshold", "a training without, s"} <= set(equal)
    assert not set(rows) & set(equal)


def test_both_are_drawn_in_the_same_axes(database: Database) -> None:
    reports = [load_report(database, job.fingerprint) for job in (identity(), LARGER)]
    sides = sides_of(reports)
    drawn = {trace.name: trace for trace in figures.accuracies(sides).data}
    assert list(drawn) == ["A: 4 workers", "A, its policy: 25 %", "B: 8 workers"]
    tick = drawn["A: 4 workers"].x[0]
    assert drawn["B: 8 workers"].x[0] == pytest.approx(tick + 0.06)
    assert list(drawn["B: 8 workers"].y) == pytest.approx([0.95, 0.951])
    curves = {trace.name: trace for trace in figures.curves(sides).data}
    assert list(curves) == [
        "A, BSP alone",
        "A, switch at 25 % (the policy),<br>about 1.82 times as fast",
        "B, BSP alone",
        "B, switch at 50 %",
    ]
    assert curves["B, BSP alone"].line.color != curves["A, BSP alone"].line.color
    assert max(curves["B, BSP alone"].x) == pytest.approx(100)
    assert not any(math.isnan(value) for trace in curves.values() for value in trace.y)


def test_different_metrics_are_not_drawn_in_the_same_axes(versions: list[ReportData]) -> None:
    job = replace(versions[1].identity, metric="loss", metric_goal="min", metric_highest=None)
    other = replace(versions[1], identity=job)
    for draw in (figures.accuracies, figures.curves):
        with pytest.raises(UserError, match="they are decided by different metrics: accuracy, los"):
            draw(sides_of([versions[0], other]))


def test_a_metric_of_which_less_is_better_is_drawn_as_its_own_values(
    versions: list[ReportData],
) -> None:
    one = versions[0]
    points = tuple(
        replace(point, mean_accuracy=-2.0, lower_accuracy=-2.5, upper_accuracy=-1.8)
        for point in one.switch_points
    )
    job = replace(one.identity, metric="loss", metric_goal="min", metric_highest=None)
    loss = replace(one, identity=job, switch_points=points, policy=None)
    figure = figures.accuracies(sides_of([loss, loss]))
    line = figure.data[0]
    assert set(line.y) == {2.0}
    assert line.error_y.array[0] == pytest.approx(0.5)
    assert line.text[0] == "100 %: 2.0000 (1.8 to 2.5)"
    assert set(figures.curves(sides_of([loss, loss])).data[0].y) == {-0.96}


def test_no_more_are_shown_than_can_be_told_apart(versions: list[ReportData]) -> None:
    with pytest.raises(UserError, match="7 reports side by side cannot be told apart; at most 6"):
        comparison_page_of([versions[0]] * 7)


@pytest.mark.parametrize(
    ("arguments", "sides"),
    [
        (["generated@1", "generated@current"], [(1, STUDY), (2, SECOND_STUDY)]),
        (["generated", "--study", STUDY, "--study", SECOND_STUDY], [(1, STUDY), (2, SECOND_STUDY)]),
        ([identity().fingerprint, LARGER.fingerprint], [(2, SECOND_STUDY), (None, "generated-8")]),
    ],
)
def test_versions_searches_and_jobs_are_put_side_by_side(
    database: Database, tmp_path: Path, arguments: list[str], sides: list[tuple[int, str]]
) -> None:
    path = tmp_path / "report.html"
    narrow = [] if arguments[0].startswith(identity().fingerprint) else ["--workers", "4"]
    done = report(str(database.url), *arguments, *narrow, "-o", path, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert [(one["policy_version"], one["study"]) for one in said["sides"]] == sides
    page = path.read_text()
    assert said["bytes"] == len(page.encode())
    assert "<title>generated: side by side</title>" in page
    assert page.count('<dl class="keys">') == 2


def test_one_version_alone_has_a_page_of_its_own(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    done = report(str(database.url), "generated@1", "--workers", "4", "-o", path)
    assert done.exit_code == 0
    assert "for the first 50\u00a0% of its 3,000 worker-steps" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generated@7"], "no version or alias '7' of this job; there is: 2, 1, current"),
        (["generated@1", "other"], "no workload 'other' in "),
        (
            ["generated@1", "--study", STUDY],
            "--study names searches of one workload; give that one",
        ),
        (["folder@home/jobs.py:it"], "no workload 'folder@home/jobs.py:it' in "),
    ],
)
def test_a_mistake_gets_one_line(database: Database, arguments: list[str], words: str) -> None:
    done = report(str(database.url), *arguments, "--workers", "4")
    assert done.exit_code == 2
    assert words in error_line(done)
