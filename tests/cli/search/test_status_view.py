"""What `status` draws in a terminal of any size, and beside a search in another process."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import database_file
from rich.console import Console, RenderableType
from search_program import CODE, start
from terminal import PATIENCE_SECONDS, Terminal

from syncswitch.cli.search.status import overview
from syncswitch.searcher.forecast import RestOfSearch
from syncswitch.searcher.status import (
    Bracket,
    RunCounts,
    RunStatus,
    SearchStatus,
    Spending,
    StatusReader,
    SwitchPointStatus,
)
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions, SearchInfo
from tests.identities import GENERATED
from tests.processes import until
from tests.records import changed
from tests.storage.conftest import POLICY
from tests.warm_program import WarmProcess
from tests.wording import Said

RUN = RunStatus(
    trial_number=3,
    switch_percent=12.5,
    replicate=1,
    state="running",
    speculative=True,
    host="node-with-a-long-name.example.org",
    process_id=4_194_304,
    worker_steps=2480,
    total_worker_steps=4000,
    accuracy=0.9832,
    cost=0.5,
    elapsed_seconds=60.0,
    remaining_seconds=4000.0,
    silent_seconds=0.5,
)
SWITCH_POINTS = tuple(
    SwitchPointStatus(percent, 2, 0, 0.9, 0.01, None, 1, 1 / 6)
    for percent in (100, 50, 25, 12.5, 6.25)
)
STUDY = "digits-000000000000-00000000"
OF_JOB = GENERATED.fingerprint, GENERATED.protocols
SEARCH = SearchStatus(
    info=SearchInfo(
        STUDY, GENERATED.fingerprint, GENERATED.protocols, "adaptive", 5, 5, 0.01, None, "local", 0
    ),
    job=changed(GENERATED, name="digits", workers=8, momentum_after_switch=None),
    conditions=RunConditions(),
    state="running",
    is_under_way=True,
    runs=RunCounts(8, None, 1, 0, 0, 1),
    last_failure="25 %, run 1: the server [was] lost",
    bracket=Bracket(0.0, 50.0, 12.5, 0.98),
    policy=None,
    uses=None,
    spending=Spending(2.5, 120.0, RestOfSearch(3.0, 1.5, 0.5, 2.5), 75.0),
    switch_points=SWITCH_POINTS,
    in_flight=(RUN, replace(RUN, trial_number=4, state="stale")),
)


def drawn(view: RenderableType, width: int) -> list[str]:
    """The lines on a terminal of this width."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None)
    console.print(view)
    return file.getvalue().splitlines()


def test_all_of_a_search_fits_into_the_smallest_usual_terminal(said: Said) -> None:
    said(*drawn(overview([SEARCH], []), 80))
    # A narrower one shows what counts, and the note first.
    lines = drawn(overview([SEARCH], [SEARCH], "not up to date"), 60)
    assert max(map(len, lines)) <= 60
    said(*lines)


STALE = (replace(RUN, state="stale"),)
SHARES = {"kept_share": 0.93, "baseline_kept_share": 0.954}


def test_the_heading_says_how_far_it_is(said: Said) -> None:
    cases: tuple[dict[str, Any], ...] = (
        {"job": changed(SEARCH.job, metric="AUC")},
        {"state": "stopped", "in_flight": ()},
        {"state": "stopped", "in_flight": STALE},  # its searcher is dead
        {"runs": RunCounts(1, None, 1, 0, 0, 1)},
        {"policy": changed(POLICY, version=2, confidence=0.976)},
        {"policy": changed(POLICY, version=2, **SHARES)},
        {"policy": changed(POLICY, switch_percent=100.0, reason="no switch saves time")},
    )
    for changes in cases:
        said(*drawn(overview([replace(SEARCH, **changes)], []), 80)[:3])


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
