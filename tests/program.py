"""The two command lines as real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAMS = {"syncswitch-search": "search", "syncswitch-run": "run"}

TINY_WORKLOAD = """
from dataclasses import replace
from syncswitch.trainers.workloads import digits

def model():
    from keras import Input, Sequential, layers
    return Sequential(
        [Input((8, 8, 1)), layers.Flatten(), layers.Dense(10, activation="softmax")]
    )

# 0.2 s of training; so short that nothing is lost by ASP within the thresholds of the tests.
tiny = replace(
    digits.workload,
    name="tiny",
    model=model,
    total_worker_steps=160,
    batch_size=16,
    learning_rate_boundaries=((100, 0.1),),
    evaluation_interval_worker_steps=10,
)
other = replace(tiny, name="other", total_worker_steps=200)
explosive = replace(tiny, name="explosive", model=digits.workload.model, learning_rate=50.0)
not_a_workload = 3
"""


def environment() -> dict[str, str]:
    """The environment of the tests, but not their database."""
    return {key: value for key, value in os.environ.items() if key != "SYNCSWITCH_STORAGE"}


def code(program: str) -> str:
    """What a program's entry point does."""
    return f"from syncswitch.cli import program; program.{PROGRAMS[program]}({program!r})"


def for_shells(folder: Path) -> Path:
    """Makes a folder with both programs; returns it."""
    folder.mkdir()
    for name in PROGRAMS:
        script = folder / name
        script.write_text(f"#!{sys.executable}\n{code(name)}\n")
        script.chmod(0o755)
    return folder


def start(program: str, *arguments: object, folder: Path) -> subprocess.Popen[str]:
    """Starts a program in a folder, with the database `syncswitch.db` there."""
    return subprocess.Popen(
        [sys.executable, "-c", code(program), *map(str, arguments)],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(program: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end."""
    process = start(program, *arguments, folder=folder)
    try:
        out, err = process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One line on standard error that holds these words, nothing else, exit status 2."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("error: ")
    for word in words:
        assert word in done.stderr
