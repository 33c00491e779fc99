"""The papers' figures: what each shows of recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reproduction.figures import FIGURES, figure, figure_rows
from reproduction.program import main
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.importing import import_runs, read_table

SMALL, LARGE = "resnet32-cifar10-8", "resnet32-cifar10-16"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, published: Path) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('figures')}/paper.db"
    with open_database(url, create=True) as database:
        import_runs(database, read_table(published / "runs.csv"))
    return url


def test_the_first_table_comes_out_of_the_authors_runs(url: str) -> None:
    bsp, switched, asp = figure_rows(url, "summary", SMALL)
    assert [row["run"] for row in (bsp, switched, asp)] == ["BSP", "BSP 6.25 %, ASP", "ASP"]
    assert switched["times_as_fast"] == pytest.approx(5.09, abs=0.005)
    assert switched["points"] == pytest.approx(-0.05, abs=0.01)
    assert switched["points_above_asp"] == pytest.approx(2.64, abs=0.01)
    assert switched["times_the_time_of_asp"] == pytest.approx(1.30, abs=0.005)
    assert (asp["runs"], asp["times_the_time_of_asp"]) == (4, 1.0)


def test_with_16_workers_everything_below_the_half_diverges(url: str) -> None:
    rows = figure_rows(url, "timing", LARGE)
    assert [(row["percent"], row["diverged"]) for row in rows] == [
        (100, 0),
        (50, 0),
        (25, 3),
        (0, 3),
    ]
    _, answer, _ = figure_rows(url, "summary", LARGE)
    assert answer["percent"] == 50


def test_a_figure_is_a_table_for_pandas(url: str) -> None:
    table = figure(url, "timing", SMALL)
    assert table["percent"].tolist() == [100, 50, 25, 12.5, 6.25, 3.125, 0]
    assert table.loc[table.run == "ASP", "seconds_to_target"].isna().all()
    curves = figure(url, "curves", SMALL)
    assert list(curves) == ["workers", "cluster", "run", "worker_step", "seconds", "accuracy"]
    assert set(curves["run"]) == set(table["run"])
    assert curves["worker_step"].max() == 64_000


@pytest.mark.parametrize("name", ["order", "generality", "size"])
def test_other_figures_show_their_runs(url: str, name: str) -> None:
    rows = figure_rows(url, name, SMALL)
    assert rows
    assert all("bsp" in row["protocols"] for row in rows)


def test_another_accuracy_can_be_timed(url: str) -> None:
    def reached(**options: Any) -> list[int]:
        return [row["reached"] for row in figure_rows(url, "timing", SMALL, **options)]

    assert reached(target_accuracy=0.5) == [5, 5, 5, 5, 5, 4, 4]
    assert reached()[-1] == 0


def test_what_is_missing_is_said_with_the_command_that_makes_it(url: str) -> None:
    with pytest.raises(UserError, match=f"python -m reproduction run stragglers {SMALL}"):
        figure_rows(url, "stragglers", SMALL)
    with pytest.raises(UserError, match=f"no figure 'fig'; choose one of {', '.join(FIGURES)}"):
        figure_rows(url, "fig", SMALL)


def test_a_drawing_is_made_anew_and_another_file_is_kept(url: str, tmp_path: Path) -> None:
    def draw(name: str) -> int:
        arguments = ["show", "summary", SMALL, "-o", str(tmp_path / name)]
        return CliRunner().invoke(main, [*arguments, "--storage", url]).exit_code

    (tmp_path / "notes.html").write_text("<p>notes</p>")
    assert [draw(name) for name in ("new.html", "new.html", "notes.html")] == [0, 0, 2]
    assert (tmp_path / "notes.html").read_text() == "<p>notes</p>"
