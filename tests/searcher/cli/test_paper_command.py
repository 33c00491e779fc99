"""`syncswitch-search paper`: what it writes and prints."""

from __future__ import annotations

import shlex
from pathlib import Path

from click.testing import CliRunner, Result

from syncswitch.searcher.cli.main import main


def invoke(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)], prog_name="syncswitch-search")


def test_the_manifest_of_a_checkout_is_imported_as_it_says(published: Path, tmp_path: Path) -> None:
    output = tmp_path / "runs.csv"
    done = invoke("paper", "manifest", published, "-o", output)
    assert done.exit_code == 0, done.stderr
    first, title, command = done.stdout.splitlines()
    assert first == f"{output}: 45 runs"
    assert title == "import them with:"
    words = shlex.split(command)[1:]
    imported = invoke(*words, "--storage", f"sqlite:///{tmp_path}/paper.db")
    assert imported.stdout.startswith("runs: 45 imported")


def test_a_file_of_another_kind_is_not_overwritten(published: Path, tmp_path: Path) -> None:
    output = tmp_path / "mine.csv"
    output.write_text("my own text")
    done = invoke("paper", "manifest", published, "-o", output)
    assert done.exit_code == 2 or done.exception is not None
    assert output.read_text() == "my own text"


def test_what_is_corrected_and_what_is_left_out_is_named(tmp_path: Path) -> None:
    for name in ("a50-b50-run2", "b4-a95-run1"):
        (tmp_path / "cifar10_res32/switch_exp" / name).mkdir(parents=True)
    done = invoke("paper", "manifest", tmp_path, "-o", tmp_path / "runs.csv")
    assert done.stdout.splitlines()[1:3] == [
        "- cifar10_res32/switch_exp/a50-b50-run2: its log shows a switch at 75 %, taken as that",
        "- cifar10_res32/switch_exp/b4-a95-run1: left out, its name does not say what was run",
    ]
