"""What `status` draws in a terminal of any size."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from syncswitch.searcher.cli.status_view import Screen
from syncswitch.searcher.simulation.rest import RestOfSearch
from syncswitch.searcher.status.summary import SearchStatus
from syncswitch.searcher.status.switch_point_status import SwitchPointStatus
from syncswitch.searcher.status.trial_status import RunStatus
from syncswitch.storage.records.job import RunConditions

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
    SwitchPointStatus(percent, 2, 0, 1, 0.9, 0.01, None, 1 / 6)
    for percent in (100, 50, 25, 12.5, 6.25)
)
SEARCH = SearchStatus(
    workload="digits",
    fingerprint="0" * 64,
    metric="accuracy",
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
    policy_version=None,
    switch_percent=None,
    criterion="kept",
    confidence=None,
    kept_share=None,
    baseline_kept_share=None,
    speed_up=None,
    speed_up_low=None,
    speed_up_high=None,
    reason=None,
    cost=2.5,
    wall_seconds=120.0,
    rest=RestOfSearch(3.0, 1.5, 0.5, 2.5),
    remaining_wall_seconds=75.0,
    switch_points=SWITCH_POINTS,
    in_flight=(RUN, replace(RUN, trial_number=4, state="lost")),
)


def drawn(screen: Screen, width: int, height: int) -> list[str]:
    """The lines on a terminal of this size."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, height=height, color_system=None)
    console.print(screen, end="", height=height)
    return file.getvalue().splitlines()


@given(
    width=st.integers(20, 200),
    height=st.integers(4, 60),
    watched=st.integers(0, 3),
    others=st.integers(0, 3),
    note=st.sampled_from(["", "not up to date: the database is busy " * 3]),
)
def test_it_fits_into_every_terminal(
    width: int, height: int, watched: int, others: int, note: str
) -> None:
    lines = drawn(Screen([SEARCH] * watched, [SEARCH] * others, note), width, height)
    assert len(lines) <= height
    assert max(map(len, lines), default=0) <= width


def test_all_of_a_search_fits_into_the_smallest_usual_terminal() -> None:
    text = "\n".join(drawn(Screen([SEARCH], []), 80, 24))
    for words in (
        "digits, 8 workers, bsp,asp",
        "switch between 0 and 50 %; target 0.9800",
        "12.5 %, run 2  ██████░░░░  62 %",
        "0.9832",
        "67 min",
        "cost so far 2.5 BSP trainings, in 2 min",
        "to come about 1.5 (0.5 to 2.5) in 3 runs, about 75 s",
        "100 % (BSP)",
        "2 + 1",
        "17 % ██",
        "last failure: 25 %, run 1: the server [was] lost",
    ):
        assert words in text
    assert "larger window" not in text


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_one_does_without_some_columns(width: int) -> None:
    text = "\n".join(drawn(Screen([SEARCH], []), width, 40))
    assert "made by" not in text
    assert "12.5 %" in text
    assert "lost" in text


def test_what_matters_most_is_kept_in_a_low_one() -> None:
    text = "\n".join(drawn(Screen([SEARCH], [SEARCH]), 80, 8))
    assert "62 %" in text
    assert "the answer?" not in text
    assert "larger window" in text


def test_the_note_is_always_there() -> None:
    assert drawn(Screen([SEARCH], [], "not up to date"), 80, 6)[-1] == "not up to date"


def test_a_search_whose_searcher_is_dead_is_not_between_two_runs() -> None:
    between = replace(SEARCH, state="stopped", in_flight=())
    dead = replace(between, in_flight=(replace(RUN, state="lost"),))
    assert "adaptive, between two runs" in "\n".join(drawn(Screen([between], []), 80, 24))
    assert "adaptive, stopped" in "\n".join(drawn(Screen([dead], []), 80, 24))


def test_an_answer_says_what_it_promises() -> None:
    found = replace(SEARCH, policy_version=2, switch_percent=12.5, confidence=0.976)
    assert "switch at 12.5 % (version 2; 98 % sure)" in drawn(Screen([found], []), 80, 24)[2]
    kept = replace(found, kept_share=0.93, baseline_kept_share=0.954)
    assert (
        "switch at 12.5 % (version 2; kept in about 93 of 100 runs, with BSP alone 95)"
        in drawn(Screen([kept], []), 80, 24)[2]
    )
    alone = replace(found, switch_percent=100.0, confidence=None, reason="no switch saves time")
    assert "(version 2; no switch saves time)" in drawn(Screen([alone], []), 80, 24)[2]


def test_what_is_called_accuracy_is_named_where_it_is_none() -> None:
    first, *_ = drawn(Screen([SEARCH], []), 100, 40)
    assert first.rstrip() == "digits, 8 workers, bsp,asp"
    first, *_ = drawn(Screen([replace(SEARCH, metric="AUC")], []), 100, 40)
    assert first.rstrip() == "digits, 8 workers, bsp,asp, accuracy is AUC"


def test_one_run_is_one_run() -> None:
    search = replace(SEARCH, finished_runs=1, rest=RestOfSearch(1.2, 1.5, 0.5, 2.5))
    text = "\n".join(drawn(Screen([search], []), 80, 24))
    assert "running: 1 run," in text
    assert "in 1 run," in text
