"""`python -m reproduction`: what it writes and prints."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reproduction.figures import FIGURES
from reproduction.logs import LogRow
from reproduction.program import main, together
from syncswitch.cli.search.main import main as searcher
from tests.reproduction.recordings import STARTED, write_log
from tests.tiny_job import write_tiny_job


def invoke(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)], prog_name="python -m reproduction")


def test_the_table_of_a_checkout_is_imported_as_it_says(published: Path, tmp_path: Path) -> None:
    output = tmp_path / "runs.csv"
    done = invoke("logs", published, "-o", output)
    assert done.exit_code == 0, done.stderr
    first, title, command = done.stdout.splitlines()
    assert first == f"{output}: 45 runs"
    assert title == "import them with:"
    words = [*shlex.split(command)[1:], "--storage", f"sqlite:///{tmp_path}/paper.db"]
    imported = CliRunner().invoke(searcher, words)
    assert imported.stdout.startswith("runs: 45 imported (1,301 evaluations)")


def test_a_file_of_another_kind_is_not_overwritten(published: Path, tmp_path: Path) -> None:
    output = tmp_path / "mine.csv"
    output.write_text("my own text")
    done = invoke("logs", published, "-o", output)
    assert done.exit_code == 2
    assert output.read_text() == "my own text"


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    (tmp_path / "cifar10_res32/switch_exp/b4-a95-run1").mkdir(parents=True)
    log = [LogRow(STARTED + step, step, 0.5) for step in (0, 16_000, 48_000)]
    write_log(tmp_path / "cifar10_res32/switch_exp/a50-b50-run2/acc.csv", log)
    done = invoke("logs", tmp_path, "-o", tmp_path / "runs.csv")
    assert done.stdout.splitlines()[1:3] == [
        "- cifar10_res32/switch_exp/a50-b50-run2: its log shows a switch at 75 %, taken as that",
        "- cifar10_res32/switch_exp/b4-a95-run1: left out, its name does not say what was run",
    ]


@pytest.mark.slow
def test_a_figures_runs_are_made_once_and_shown(tmp_path: Path) -> None:
    job = write_tiny_job(tmp_path)
    storage = ("--storage", f"sqlite:///{tmp_path}/runs.db")
    command = ("run", "order", job, "--runs", 1, "--workers", 2, *storage)
    done = invoke(*command, "-o", tmp_path / "order.html")
    assert done.exit_code == 0, done.stderr
    names = [line.split("  ")[0] for line in done.stdout.splitlines()[2:]]
    assert names[: names.index("")] == [
        "BSP",
        "ASP 25 %, BSP",
        "BSP 75 %, ASP",
        "ASP 50 %, BSP",
        "BSP 50 %, ASP",
        "ASP 75 %, BSP",
        "BSP 25 %, ASP",
        "ASP",
    ]
    assert done.stderr.count(" s of training") == 8
    assert "<svg" in (tmp_path / "order.html").read_text()

    again = invoke(*command, "--json")
    assert "s of training" not in again.stderr
    rows = json.loads(again.stdout)
    assert [row["run"] for row in rows] == names[:8]
    shown = invoke("show", "order", job, *storage, "--json")
    assert json.loads(shown.stdout) == rows


@pytest.mark.slow
def test_several_figures_are_made_by_one_command(tmp_path: Path) -> None:
    job, drawings = write_tiny_job(tmp_path), tmp_path / "drawings.html"
    storage = ("--storage", f"sqlite:///{tmp_path}/runs.db")
    options = ("--runs", 1, "--workers", 3, "--profile", "uniform")
    done = invoke("run", "dssp,stragglers,dssp", job, *options, *storage, "-o", drawings)
    assert done.exit_code == 0, done.stderr
    titles = [f"{name}: {FIGURES[name].title}" for name in ("dssp", "stragglers")]
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in titles] == titles
    # Each on its own cluster: the one of DSSP has unequal workers, whatever is said of all.
    assert done.stdout.count("DSSP:3-15 ") == 1
    assert "sweep 4 of 4: --at 50 --inject moderate --online elastic" in done.stderr
    assert "elastic, stragglers" in " ".join(done.stdout.split())
    assert drawings.read_text().count("<svg") == 2

    shown = invoke("show", "all", job, *storage, "--json")
    figures = json.loads(shown.stdout)
    clusters = {name: {row["cluster"] for row in rows} for name, rows in figures.items()}
    assert clusters["dssp"] != clusters["stragglers"]
    first = ["summary", "timing", "order", "curves", "size", "generality"]
    assert list(figures) == [*first, "stragglers", "dssp"]
    assert "without runs: batch, momentum, overhead, ds-sync" in shown.stderr


def test_of_several_figures_each_keeps_what_it_is_about() -> None:
    options = ("--runs", "1", "--profile", "uniform", "--profile=uniform")
    real = ("--trainer", "local", "--at", "50")
    assert together(options, real) == ["--runs", "1", *real]
    mixed = ("--profile", "heterogeneous")
    assert together(options, mixed) == [*options, *mixed]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "order,fig", "digits"), "'fig' is not one of"),
        (("run", "fig", "digits"), "'fig' is not one of"),
        (("run", "order", "digits", "--wrong"), "No such option"),
        (("run", "order", "digits", "--runs", "0"), "'--runs': 0 is not in the range"),
        (("show", "order", "digits", "--time-to", "2"), "'--time-to': 2"),
    ],
)
def test_wrong_words_are_one_line(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = invoke(*words, "--storage", f"sqlite:///{tmp_path}/runs.db")
    assert message in done.stderr
    assert done.exit_code == 2
    assert not (tmp_path / "runs.db").exists()


def test_the_figures_are_listed() -> None:
    lines = invoke("list").stdout.splitlines()
    assert len(lines) == 2 + len(FIGURES)
    assert lines[2].startswith("summary")
    assert "Table I" in lines[2]
