"""`python -m reproduction`: what it writes and prints, and that every experiment works."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reproduction import program
from reproduction.figures import FIGURES
from reproduction.logs import LogRow
from reproduction.program import main, together
from syncswitch.cli.search.main import main as searcher
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.simulated import trainer
from tests.documentation.pages import ROOT, Page, commands
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
    output.write_text("my own text")
    assert invoke("logs", published, "-o", output).exit_code == 2
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
def test_several_figures_are_made_once_by_one_command_and_shown(tmp_path: Path) -> None:
    job, drawings = write_tiny_job(tmp_path), tmp_path / "drawings.html"
    storage = ("--storage", f"sqlite:///{tmp_path}/runs.db")
    options = ("--runs", 1, "--workers", 3, "--profile", "uniform")
    command = ("run", "dssp,stragglers,dssp", job, *options, *storage)
    done = invoke(*command, "-o", drawings)
    assert done.exit_code == 0, done.stderr
    titles = [f"{name}: {FIGURES[name].title}" for name in ("dssp", "stragglers")]
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in titles] == titles
    # Each on its own cluster: the one of DSSP has unequal workers, whatever is said of all.
    assert done.stdout.count("DSSP:3-15 ") == 1
    assert "sweep 4 of 4: --at 50 --inject moderate --online elastic" in done.stderr
    assert "elastic, stragglers" in " ".join(done.stdout.split())
    assert drawings.read_text().count("<svg") == 2

    again = invoke(*command, "--json")
    assert " s of training" in done.stderr
    assert " s of training" not in again.stderr
    shown = invoke("show", "all", job, *storage, "--json")
    figures, made = json.loads(shown.stdout), json.loads(again.stdout)
    assert {name: figures[name] for name in made} == made
    clusters = {name: {row["cluster"] for row in rows} for name, rows in made.items()}
    assert clusters["dssp"] != clusters["stragglers"]
    first = ["summary", "timing", "order", "curves", "size", "generality"]
    assert list(figures) == [*first, "stragglers", "dssp"]
    assert "without runs: batch, momentum, overhead, ds-sync" in shown.stderr


def test_of_several_figures_each_keeps_what_it_is_about() -> None:
    options = ("--runs", "1", "--profile", "uniform", "--profile=uniform")
    real, mixed = ("--trainer", "local", "--at", "50"), ("--profile", "heterogeneous")
    assert together(options, real) == ["--runs", "1", *real]
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


EXPERIMENTS = program.EXPERIMENTS.read_text().splitlines()

# One of each kind; the last notebook makes and draws every figure.
_KINDS = [0, 10, 11, 12, 13]
_ALONE = ("--workers", "2")


def test_the_page_names_the_experiments() -> None:
    blocks = [block for block in Page(ROOT / "docs/papers.md").blocks if "not run" in block.marks]
    named = [shlex.join(command.words) for block in blocks for command in commands(block)]
    assert [one.replace(" --runs 10", "") for one in named] == EXPERIMENTS


def smaller(command: str, job: str, other: str) -> str:
    """The same on a tiny job with one run of each kind."""
    words = command.replace("reproduction/hot_breast_cancer.py:workload", other).split()
    if words[0] == "python":
        words[5] = job
        words += [
            "--runs",
            "1",
            "--workers",
            "2,3" if words[4] == "size" else "2",
            "--at",
            "100,50",
        ]
    elif words[1] == "run":
        words[2] = other if words[2] == other else job
        words += [*_ALONE, "--halvings", "1"]
    else:
        words[2] = other if words[2] == other else job
        words[4] = "tiny" if words[2] == other else "other"
        words += [*_ALONE, "--runs", "1"]
    return " ".join(words)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_experiments_of_each_kind_work_at_a_small_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A call that computes several gradients takes seconds to compile.
    monkeypatch.setattr(trainer, "_MOST_AT_ONCE", 1)
    job, other = write_tiny_job(tmp_path), f"{tmp_path}/other.py:workload"
    another = (tmp_path / "tiny.py").read_text().replace('name="tiny"', 'name="other"')
    (tmp_path / "other.py").write_text(another.replace("learning_rate=0.05", "learning_rate=0.1"))
    small = [smaller(EXPERIMENTS[number], job, other) for number in _KINDS]
    (tmp_path / "experiments.txt").write_text("\n".join(small) + "\n")
    monkeypatch.setattr(program, "EXPERIMENTS", tmp_path / "experiments.txt")
    with kept_for_the_next():
        done = CliRunner().invoke(program.main, ["papers", "--runs", "1"])
    assert done.exit_code == 0, f"{done.stderr} {done.exception!r}"
    texts = sorted((tmp_path / "papers").glob("*.txt"))
    assert len(texts) == len(_KINDS)
    assert all(path.read_text().strip() for path in texts)
    drawn = [path.name[3:] for path in sorted((tmp_path / "papers").glob("*.html"))]
    assert [name.split("-")[1] for name in drawn] == ["summary", "size"]
