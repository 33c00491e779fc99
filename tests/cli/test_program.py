"""What Ctrl-C does to a program, from its first import to the end of the interpreter."""

from __future__ import annotations

import configparser
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import until
from tests.program import PROGRAMS, code, environment

# Says when an interrupt is no longer the interpreter's own.
WATCHED = """
import signal
def set_and_tell(number, handler, set_it=signal.signal):
    before = set_it(number, handler)
    if before is signal.default_int_handler:
        print("begun", flush=True)
    return before
signal.signal = set_and_tell
"""

# Many short sleeps: one that begins just when a signal has come is not cut short.
SCRIPT = """
import sys, time
from syncswitch.cli.program import run_program
def program(prog_name):
    try:
        print("begun", flush=True)
        for _ in range(1200):
            time.sleep(0.05)
    except KeyboardInterrupt:
        time.sleep(SECONDS)
        print("in order", flush=True)
        sys.exit(130)
run_program(lambda: program)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A program that has said that it has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def interrupt(process: subprocess.Popen[str], times: int = 1, pause: float = 0.1) -> None:
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(pause)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, output, errors."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_entry_points_are_those_of_the_tests() -> None:
    settings = configparser.ConfigParser()
    settings.read(Path(__file__).parents[2] / "setup.cfg")
    lines = settings["options.entry_points"]["console_scripts"].split("\n")
    found = dict(line.split(" = ") for line in lines if line)
    assert found == {name: f"syncswitch.cli.program:{entry}" for name, entry in PROGRAMS.items()}


@pytest.mark.parametrize(
    ("name", "delay_seconds", "times"), [("syncswitch-search", 0.0, 1), ("syncswitch-run", 0.3, 3)]
)
def test_a_program_that_begins_ends_with_one_line(
    name: str, delay_seconds: float, times: int
) -> None:
    process = start(WATCHED + code(name), "--help")
    time.sleep(delay_seconds)
    interrupt(process, times, 0.03)
    _, errors = process.communicate(timeout=60)
    # On a fast machine it has come to its end before.
    assert (process.returncode, errors.strip()) in [(130, "error: interrupted"), (0, "")]


def test_while_it_is_imported_nothing_else_happens() -> None:
    script = """
import time
from syncswitch.cli.program import run_program
def load():
    try:
        print("begun", flush=True)
        for _ in range(1200):
            time.sleep(0.05)
    except BaseException:
        raise ImportError("half a library")
run_program(load)
"""
    process = start(script)
    interrupt(process)
    assert ended(process) == (130, "", "error: interrupted\n")


def test_three_in_a_row_are_one() -> None:
    process = start(SCRIPT.replace("SECONDS", "0.5"))
    interrupt(process, 3)
    assert ended(process) == (130, "in order\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_would_end_it_ends_it_in_order(number: signal.Signals) -> None:
    # Under `nohup` these tests ignore SIGHUP, and so would it.
    usual = f"import signal\nsignal.signal({number:d}, signal.SIG_DFL)\n"
    process = start(usual + SCRIPT.replace("SECONDS", "0.1"))
    process.send_signal(number)
    assert ended(process) == (128 + number, "in order\n", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", ">/dev/full 2>&1"])
def test_a_stream_that_is_closed_or_full_ends_no_program(tmp_path: Path, closed: str) -> None:
    """Nor is a file that the program opens given its number, and what is printed."""
    script = """
import os, sys
from syncswitch.cli import console
from syncswitch.cli.program import run_program
def program(prog_name):
    with open("file", "w") as file:
        console.print_note("note")
        if sys.argv[1:]:
            os.write(2, b"from a library")
            console.echo("text")
            console.print_text("sentence")
            console.print_rows([[("column", "cell")]])
    sys.exit(3)
run_program(lambda: program)
"""
    words = [sys.executable, "-c", script, *(() if "full" in closed else ("prints",))]
    line = f"{shlex.join(words)} {closed}"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment(), check=False)
    assert (done.returncode, (tmp_path / "file").read_text()) == (3, "")


def test_a_terminal_that_goes_away_ends_no_program(tmp_path: Path) -> None:
    """Under `nohup`, with a display on it."""
    script = """
import fcntl, pathlib, signal, sys, termios, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from syncswitch.cli.console import print_note, progress_bars, rich_console
from syncswitch.cli.program import run_program
def program(prog_name):
    with progress_bars(rich_console(stderr=True)) as bars:
        task = bars.add_task("training", total=9)
        pathlib.Path("begun").touch()
        while not pathlib.Path("gone").exists():
            time.sleep(0.01)
        bars.update(task, completed=5)
        bars.console.print("event")
    print_note("note")
    pathlib.Path("saved").touch()
run_program(lambda: program)
"""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    until((tmp_path / "begun").exists)
    os.close(ours)
    (tmp_path / "gone").touch()
    assert (process.wait(60), (tmp_path / "saved").exists()) == (0, True)


def test_another_one_a_second_later_ends_it_at_once() -> None:
    process = start(SCRIPT.replace("SECONDS", "60"))
    interrupt(process)
    time.sleep(1.1)
    interrupt(process)
    assert ended(process) == (130, "", "error: interrupted\n")


@pytest.mark.parametrize("status", [0, 1])
def test_what_has_ended_keeps_its_status(status: int) -> None:
    script = f"""
import atexit, sys, time
from syncswitch.cli.program import run_program
def slowly():
    print("begun", flush=True)
    for _ in range(1200):
        time.sleep(0.05)
def program(prog_name):
    atexit.register(slowly)
    sys.exit({status})
run_program(lambda: program)
"""
    process = start(script)
    interrupt(process)
    assert ended(process) == (status, "", "")


def test_whoever_ignores_interrupts_goes_on_ignoring_them() -> None:
    script = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
from syncswitch.cli.program import run_program
def program(prog_name):
    print("begun", flush=True)
    time.sleep(0.5)
    print("done")
run_program(lambda: program)
"""
    process = start(script)
    interrupt(process)
    assert ended(process) == (0, "done\n", "")
