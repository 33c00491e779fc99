"""`status` on a terminal, beside a search in another process."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import database_file

from syncswitch.searcher.status_reading import StatusReader
from syncswitch.storage.errors import UserError

PROGRAM = [sys.executable, str(Path(__file__).with_name("search_program.py"))]
PATIENCE_SECONDS = 120


class Terminal:
    """A program on a terminal of 80 columns and 24 lines, and all that it wrote there."""

    def __init__(self, *arguments: str) -> None:
        self._fd, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        )
        os.close(theirs)
        self.text = ""

    def wait_for(self, words: str) -> None:
        """Reads until these words come."""
        until = time.monotonic() + PATIENCE_SECONDS
        while words not in self.text:
            assert time.monotonic() < until, self.text
            assert self._read(), self.text

    def end(self) -> int:
        """Reads until the program has ended; gives its exit status."""
        while self._read():
            pass
        os.close(self._fd)
        return self.process.wait(PATIENCE_SECONDS)

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 1.0)[0]:
            return self.process.poll() is None
        try:
            # Without what moves the cursor and colours the text.
            told = os.read(self._fd, 65536).decode(errors="replace")
        except OSError:  # nobody has the other end any more
            return False
        self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", told)
        return True


@pytest.fixture
def search(url: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A search whose first run goes on until somebody comes to the meeting."""
    options = ["--strategy", "paper", "--settings", "2", "--runs", "1", "--storage", url]
    (tmp_path / "meeting").mkdir()
    process = subprocess.Popen(
        [*PROGRAM, "run", "generated", *options],
        env={**os.environ, "GENERATED_MEETING": f"2:{tmp_path / 'meeting'}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_running(url):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.1)
    yield process
    process.kill()
    process.wait()


def is_running(url: str) -> bool:
    with suppress(UserError):
        return any(search.in_flight for search in StatusReader(url).read(with_rest=False))
    return False


def test_it_ends_with_the_search(url: str, search: subprocess.Popen[bytes], tmp_path: Path) -> None:
    terminal = Terminal("status", "--interval", "0.2", "--storage", url)
    terminal.wait_for("paper, running: 0 of at most 3 runs")
    terminal.wait_for(f":{search.pid}")
    terminal.wait_for("to come about")
    (tmp_path / "meeting" / "somebody").touch()
    assert terminal.end() == 0
    assert search.wait(PATIENCE_SECONDS) == 0
    # After the last picture what remains on the terminal.
    assert "paper, done: 3 of at most 3 runs" in terminal.text[-1500:]
    assert "switch at 25 % (version 1)" in terminal.text[-1500:]
    assert "Traceback" not in terminal.text


@pytest.mark.usefixtures("search")
def test_it_outlives_its_database_and_ends_with_ctrl_c(url: str) -> None:
    terminal = Terminal("status", "--interval", "0.2", "--storage", url)
    terminal.wait_for("100 %, run 1")
    path = database_file(url)
    away = path.rename(path.with_name("away.db"))
    terminal.wait_for("not up to date: no database at")
    away.rename(path)
    terminal.text = ""
    terminal.wait_for("100 %, run 1")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.text
