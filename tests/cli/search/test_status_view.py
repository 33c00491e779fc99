"""What `status` draws in a terminal of any size."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from syncswitch.cli.search.status import overview
from syncswitch.searcher.simulation.forecast import RestOfSearch
from syncswitch.searcher.status import RunStatus, SearchStatus, SwitchPointStatus
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.metric import Metric
from tests.storage.conftest import POLICY

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
SEARCH = SearchStatus(
    workload="digits",
    fingerprint="0" * 64,
    decided_by=Metric(),
    dropped=None,
    workers=8,
    simulated_cluster=None,
    first_protocol="bsp",
    second_protocol="asp",
    conditions=RunConditions(),
    study="digits-000000000000-00000000",
    strategy="adaptive",
    state="running",
    is_under_way=True,
    finished_runs=8,
    most_runs=None,
    failed_runs=1,
    interrupted_runs=0,
    cancelled_runs=0,
    speculative_runs=1,
    last_failure="25 %, run 1: the server [was] lost",
    lower_percent=0.0,
    upper_percent=50.0,
    open_percent=12.5,
    target_accuracy=0.98,
    threshold=0.01,
    policy=None,
    uses=None,
    cost=2.5,
    wall_seconds=120.0,
    rest=RestOfSearch(3.0, 1.5, 0.5, 2.5),
    remaining_wall_seconds=75.0,
    switch_points=SWITCH_POINTS,
    in_flight=(RUN, replace(RUN, trial_number=4, state="stale")),
)


def drawn(view: RenderableType, width: int) -> list[str]:
    """The lines on a terminal of this width."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None)
    console.print(view)
    return file.getvalue().splitlines()


def test_all_of_a_search_fits_into_the_smallest_usual_terminal() -> None:
    text = "\n".join(drawn(overview([SEARCH], []), 80))
    for words in (
        "digits, 8 workers, bsp,asp",
        "switch between 0 and 50 %; target accuracy 0.9800, threshold 0.01",
        "12.5 %, run 2  ██████░░░░  62 %",
        "0.9832",
        "67 min",
        "cost so far 2.5 BSP trainings, in 2 min",
        "still to come about 1.5 (0.5 to 2.5) in 3 runs, about 75 s",
        "100 % (BSP)",
        "2 + 1",
        "17 % ██",
        "last failure: 25 %, run 1: the server [was] lost",
    ):
        assert words in text


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_one_shows_what_counts(width: int) -> None:
    lines = drawn(overview([SEARCH], [SEARCH]), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    for words in ("12.5 %", "0.9832", "62 %"):
        assert words in text


def test_the_note_comes_first_for_the_end_may_be_cut_off() -> None:
    assert drawn(overview([SEARCH], [], "not up to date"), 80)[0] == "not up to date"


def test_a_search_whose_searcher_is_dead_is_not_between_two_runs() -> None:
    between = replace(SEARCH, state="stopped", in_flight=())
    dead = replace(between, in_flight=(replace(RUN, state="stale"),))
    assert "adaptive, between two runs" in "\n".join(drawn(overview([between], []), 80))
    assert "adaptive, stopped" in "\n".join(drawn(overview([dead], []), 80))


def test_an_answer_says_what_it_promises() -> None:
    def said(**changes: object) -> str:
        policy = replace(POLICY, version=2, **changes)  # type: ignore[arg-type]
        return drawn(overview([replace(SEARCH, policy=policy)], []), 80)[2]

    assert said(confidence=0.976) == "switch at 12.5 %, version 2; 98 % sure"
    shares = {"kept_share": 0.93, "baseline_kept_share": 0.954}
    assert said(confidence=0.976, **shares) == (
        "switch at 12.5 %, version 2; kept in about 93 of 100 runs (95 with BSP alone)"
    )
    alone = said(switch_percent=100.0, reason="no switch saves time")
    assert alone == "switch at 100 %, version 2; no switch saves time"


def test_what_is_called_accuracy_is_named_where_it_is_none() -> None:
    first, *_ = drawn(overview([SEARCH], []), 100)
    assert first.rstrip() == "digits, 8 workers, bsp,asp"
    first, *_ = drawn(overview([replace(SEARCH, decided_by=Metric("AUC"))], []), 100)
    assert first.rstrip() == "digits, 8 workers, bsp,asp, by AUC"


def test_one_run_is_one_run() -> None:
    search = replace(SEARCH, finished_runs=1, rest=RestOfSearch(1.2, 1.5, 0.5, 2.5))
    text = "\n".join(drawn(overview([search], []), 80))
    assert "running: 1 run," in text
    assert "in 1 run," in text
