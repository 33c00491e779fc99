"""The experiments are those that the page about the papers names, and each of them works."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from reproduction import program
from reproduction.figures import FIGURES
from syncswitch.trainers.simulated import trainer
from tests.documentation.pages import ROOT, Page, commands
from tests.tiny_job import write_tiny_job

EXPERIMENTS = program.EXPERIMENTS.read_text().splitlines()

_ALONE = ("--workers", "2")
_SIZES = ("--workers", "2,3", "--at", "100,50")
_SMALLER = {
    "stragglers": ("--workers", "3"),
    "dssp": _ALONE,
    "ds-sync": (),
    "batch": (*_ALONE, "--at", "50"),
    "momentum": (*_ALONE, "--at", "50"),
    "size": _SIZES,
    "generality": _SIZES,
    "overhead": ("--launcher", "in-process", "--workers", "2"),
}
# On the profile of the others, whose runs count for these as well.
_ON_ANY_PROFILE = {"summary", "timing", "curves", "order", "size", "batch"}


def test_the_page_names_the_experiments() -> None:
    blocks = [block for block in Page(ROOT / "docs/papers.md").blocks if "not run" in block.marks]
    named = [shlex.join(command.words) for block in blocks for command in commands(block)]
    assert [one.replace(" --runs 10", "") for one in named] == EXPERIMENTS


def smaller(command: str, job: str, other: str) -> str:
    """The same on a tiny job with one run of each kind."""
    words = command.replace("reproduction/hot_breast_cancer.py:workload", other).split()
    if words[0] == "python":
        figure, words[5] = words[4], job
        words += ["--runs", "1", *_SMALLER.get(figure, (*_ALONE, "--at", "100,50"))]
        if "--profile" not in words and figure in _ON_ANY_PROFILE:
            words += ["--profile", "sync-switch-resnet32"]
    elif words[1] == "run":
        words[2] = other if words[2] == other else job
        words += [*_ALONE, "--settings", "1"]
    else:
        words[2] = other if words[2] == other else job
        words[4] = "tiny" if words[2] == other else "other"
        words += [*_ALONE, "--runs", "1"]
    return " ".join(words)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_experiments_work_at_a_small_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A call that computes several gradients takes seconds to compile.
    monkeypatch.setattr(trainer, "_MOST_AT_ONCE", 1)
    job, other = write_tiny_job(tmp_path), f"{tmp_path}/other.py:workload"
    another = (tmp_path / "tiny.py").read_text().replace('name="tiny"', 'name="other"')
    (tmp_path / "other.py").write_text(another.replace("learning_rate=0.05", "learning_rate=0.1"))
    small = [smaller(command, job, other) for command in EXPERIMENTS]
    (tmp_path / "experiments.txt").write_text("\n".join(small) + "\n")
    monkeypatch.setattr(program, "EXPERIMENTS", tmp_path / "experiments.txt")
    done = CliRunner().invoke(program.main, ["papers", "--runs", "1"])
    assert done.exit_code == 0, f"{done.stderr} {done.exception!r}"
    texts = sorted((tmp_path / "papers").glob("*.txt"))
    assert len(texts) == len(EXPERIMENTS)
    assert all(path.read_text().strip() for path in texts)
    drawn = {path.name[3:] for path in (tmp_path / "papers").glob("*.html")}
    assert {name for name in FIGURES if any(one.startswith(f"run-{name}-") for one in drawn)} == {
        *FIGURES
    }
