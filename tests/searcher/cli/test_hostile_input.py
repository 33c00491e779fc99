"""What no command can use is refused in one line, at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import error_line

from syncswitch.searcher.cli.main import main

MODULES = {
    "odd.py": "class Odd(BaseException):\n    pass\nraise Odd('boo')\n",
    "mute.py": (
        "class Mute(Exception):\n    def __str__(self):\n        raise RuntimeError\nraise Mute\n"
    ),
}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "odd.py:x"], "importing odd.py failed with Odd: boo;"),
        (["run", "mute.py:x"], "importing mute.py failed with Mute;"),
        (["profile", "calibrate", "digits", "--variation", "nan"], "'nan' is not in the range"),
        (["status", "--interval", "nan"], "'nan' is not in the range"),
        (
            ["run", "digits", "--strategy", "paper", "--baseline-runs", "2147483648"],
            "--baseline-runs is 2147483648: give a whole number, 1 to 10000",
        ),
        (["run", "digits", "--runs", "10001"], "--runs is 10001: give a whole number, 1 to"),
        (["run", "digits", "--uses", "9" * 30], "give a whole number, 1 to 1000000"),
        (
            ["run", "digits", "--target-accuracy", "0.9", "--target-runs", "10001"],
            "--target-runs is 10001: give a whole number",
        ),
        (["cost", "digits", "--simulations", "9" * 12], "is not in the range"),
        (["trials", "--study", "x", "--number", "9" * 30], "is not in the range"),
        (["run", "dig\udcffits"], r"the argument 'dig\udcffits' is not UTF-8 text"),
        (["policy", "import", "/dev/zero"], "/dev/zero: it is no plain file"),
        (["policy", "import", "pipe"], "pipe: it is no plain file"),
        (["import", "pipe"], "pipe: it is no plain file"),
        (["profile", "show", "pipe"], "it is no plain file"),
    ],
)
def test_it_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    for name, content in MODULES.items():
        (tmp_path / name).write_text(content)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert said in error_line(done)


def test_not_even_a_traceback_shows_the_password() -> None:
    words = ["status", "--debug", "--storage", "postgresql://me:hunter2/name"]
    done = CliRunner().invoke(main, words)
    assert "Traceback" in done.stderr
    assert "hunter2" not in done.output
