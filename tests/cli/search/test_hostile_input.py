"""What no command can use is refused in one line, at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import error_line

from syncswitch.cli.run.main import main as run
from syncswitch.cli.search.main import main

LONG = "x" * 300
COMMAND = ("--trainer", "command", "--command", "true {switch_step}")
SIMULATED = ("--trainer", "simulated", "--workers", "2")

MODULES = {
    "odd_names.py": "def __getattr__(name):\n    raise RuntimeError('boo')\n",
    "too_much.py": (
        "from dataclasses import replace\n"
        "from syncswitch.trainers.workloads.digits import workload\n"
        "batch = replace(workload, name='batch', batch_size=10**9)\n"
        "larger = replace(workload, name='larger', batch_size=1201)\n"
    ),
    "too_long.py": (
        "from dataclasses import replace\n"
        "from syncswitch.trainers.workloads.digits import workload\n"
        "steps = replace(workload, total_worker_steps=10**30)\n"
    ),
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
        (["run", "dig\udcffits"], r"the argument 'dig\udcffits' is not UTF-8 text"),
        (["policy", "import", "/dev/zero"], "/dev/zero: it is no plain file"),
        (["policy", "import", "pipe"], "pipe: it is no plain file"),
        (["import", "pipe"], "pipe: it is no plain file"),
        (["profile", "show", "pipe"], "it is no plain file"),
        (["uses", "import", LONG], f"File name too long: '{LONG}'; give a shorter name"),
        (["run", "odd_names.py:x"], "has no 'x' (it holds no Workload; RuntimeError: boo)"),
        (["run", "too_long.py:steps"], "give a whole number, 1 to 1000000000000000"),
        (["syncswitch-run", "digits", "--policy", LONG], "File name too long"),
        (["syncswitch-run", f"{LONG}.py:x"], "File name too long"),
        (["syncswitch-run", "digits", "--switch-at", "5", "-o", f"{LONG}.keras"], "too long"),
        (["syncswitch-run", "digits", "--switch-at", "5", "--checkpoints", LONG], "too long"),
        (
            ["syncswitch-run", "job", *COMMAND, "--total-steps", "9" * 25, "--switch-at", "50"],
            "give the steps of a whole training as the command counts them, 2 to 1000000000000000",
        ),
        (
            ["syncswitch-run", "too_much.py:batch", "--switch-at", "50"],
            "batch_size is 1,000,000,000, and there are 1,200 examples to train with",
        ),
        (
            ["syncswitch-run", "too_much.py:larger", "--switch-at", "50", *SIMULATED],
            "batch_size is 1,201, and there are 1,200 examples to train with",
        ),
    ],
)
def test_it_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    for name, content in MODULES.items():
        (tmp_path / name).write_text(content)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    program = run if words[0] == "syncswitch-run" else main
    done = CliRunner().invoke(program, words[program is run :])
    assert done.exit_code == 2
    assert said in error_line(done)


def test_not_even_a_traceback_shows_the_password() -> None:
    words = ["status", "--debug", "--storage", "postgresql://me:hunter2/name"]
    done = CliRunner().invoke(main, words)
    assert "Traceback" in done.stderr
    assert "hunter2" not in done.output
