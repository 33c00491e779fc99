"""`status` on a terminal, beside a search in another process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import database_file
from search_program import CODE, start
from terminal import PATIENCE_SECONDS, Terminal

from syncswitch.searcher.status import StatusReader
from syncswitch.storage.errors import UserError
from tests.processes import until
from tests.warm_program import WarmProcess


@pytest.fixture
def search(url: str, tmp_path: Path) -> Iterator[WarmProcess]:
    """A search whose first run goes on until somebody comes to the meeting."""
    options = ["--strategy", "paper", "--halvings", "2", "--runs", "1", "--storage", url]
    (tmp_path / "meeting").mkdir()
    meeting = f"2:{tmp_path / 'meeting'}"
    process = start("run", "generated", *options, GENERATED_MEETING=meeting)
    until(lambda: is_running(url), PATIENCE_SECONDS)
    yield process
    process.kill()
    process.communicate()


def is_running(url: str) -> bool:
    with suppress(UserError):
        return any(search.in_flight for search in StatusReader(url).read(with_rest=False))
    return False


def watch(url: str) -> Terminal:
    return Terminal(CODE, "status", "--storage", url)


def test_it_ends_with_the_search(url: str, search: WarmProcess, tmp_path: Path) -> None:
    terminal = watch(url)
    terminal.wait_for("paper, running: 0 of at most 3 runs")
    terminal.wait_for(f":{search.pid}")
    terminal.wait_for("to come about")
    (tmp_path / "meeting" / "somebody").touch()
    assert terminal.end() == 0
    assert search.wait(PATIENCE_SECONDS) == 0
    # After the last picture what remains on the terminal.
    assert "paper, done: 3 of at most 3 runs" in terminal.text[-1500:]
    assert "switch at 25 %, version 1" in terminal.text[-1500:]
    assert "Traceback" not in terminal.text


@pytest.mark.usefixtures("search")
def test_it_outlives_its_database_and_ends_with_ctrl_c(url: str) -> None:
    terminal = watch(url)
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
