"""Every command on the page about the papers works, on a job that takes no time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from syncswitch.searcher.cli.main import main
from syncswitch.searcher.papers.figures import FIGURES
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.simulated import trainer
from tests.documentation.pages import ROOT, Page, commands
from tests.tiny_job import write_tiny_job

PAGE = Page(ROOT / "docs" / "papers.md")


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


def typed() -> Iterator[list[str]]:
    """What the page says to type, without the program."""
    for block in PAGE.blocks:
        if block.language in ("console", "text"):
            for command in commands(block):
                if command.words[0] == "syncswitch-search":
                    yield command.words[1:]


def smaller(words: list[str], job: str, other: str, checkout: Path) -> list[str]:
    """The same on a tiny job with one run of each kind, and on a checkout that is there."""
    words = [word.replace("Sync-Switch", str(checkout)) for word in words]
    if words[0] in ("run", "evaluate"):
        names = ("tiny", "other") if words[0] == "evaluate" else (job, other)
        jobs = {"breast-cancer": names[0], "hot-breast-cancer": names[1]}
        words = [
            jobs.get(word, word).replace("hot_breast_cancer.py:workload", other) for word in words
        ]
        words += [*_ALONE, *(("--settings", "1") if words[0] == "run" else ())]
        if words[0] == "evaluate":
            words[2] = job
            words += ["--runs", "1"]
    elif words[:2] == ["paper", "run"] or words[0] == "sweep":
        words[3 if words[0] == "paper" else 1] = job
        words += ["--runs", "1", *_SMALLER.get(words[2], (*_ALONE, "--at", "100,50"))]
        if "--profile" not in words and words[2] in _ON_ANY_PROFILE:
            words += ["--profile", "sync-switch-resnet32"]
    if words[0] == "cost":
        words += ["--simulations", "10"]
    return words


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_commands_work_at_a_small_size(
    tmp_path: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A call that computes several gradients takes seconds to compile.
    monkeypatch.setattr(trainer, "_MOST_AT_ONCE", 1)
    monkeypatch.setenv("SYNCSWITCH_STORAGE", f"sqlite:///{tmp_path}/runs.db")
    job = write_tiny_job(tmp_path)
    another = (tmp_path / "tiny.py").read_text().replace('name="tiny"', 'name="other"')
    (tmp_path / "other.py").write_text(another.replace("learning_rate=0.05", "learning_rate=0.1"))
    kinds: set[str] = set()
    with kept_for_the_next():
        for words in typed():
            kinds.update(words)
            smaller_words = smaller(words, job, f"{tmp_path}/other.py:workload", published)
            done = CliRunner().invoke(main, smaller_words, prog_name="syncswitch-search")
            assert done.exit_code == 0, f"{smaller_words}: {done.stderr} {done.exception!r}"
            assert done.stdout.strip()
    assert {*FIGURES, "manifest", "import", "cost"} <= kinds
