"""Short courses of each protocol, answer by answer, and protocols that release alike."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.trainers.protocols.protocol_contract import EVENTS, Event, cluster, trace

COURSES = {
    "a round lasts until the last has pushed": ("bsp", 3, "2; 0; 1 > 0 1 2 = 0+1+2"),
    "the gradient of a worker that left counts once": ("bsp", 2, "0; -0; 1 > 1 = 0+1; 1 > 1 = 1"),
    "a replica that left is in no average": ("local-sgd:1", 3, "2; -2; 1; 0 > 0 1 = 0+1"),
    "a fast worker makes more steps of a period": (
        "local-sgd:4:semi-sync",
        2,
        "0 > 0; 0 > 0; 0 > 0; 1 > 1; 0 > 0; 0 > 0; 0; 1 > 0 1 = 0+1",
    ),
    "who is away for a period is in the next average": (
        "local-sgd:2:semi-sync",
        3,
        "0 > 0; 1 > 1; 0 > 0; 1; 0 > 0 1 = 0+1; "
        "2 > 2; 0 > 0; 1 > 1; 0 > 0; 1; 2; 0 > 0 1 2 = 0+1+2",
    ),
    "what a worker that left had to do is left to nobody": (
        "local-sgd:2:semi-sync",
        3,
        "-2; 0 > 0; 1 > 1; 0; 1 > 0 1 = 0+1",
    ),
    "who joins is level with the slowest": (
        "ssp:1",
        2,
        "0 > 0; 1 > 1; " * 4 + "+2 > 2; 0 > 0; 0; 1 > 1; 2 > 0 2",
    ),
    "groups change, without a barrier for all": (
        "ds-sync:2",
        4,
        "2; 3 > 2 3 = 2+3; 2; 0; 1 > 0 1 = 0+1; 0 > 0 2 = 0+2",
    ),
    # Else the others' would run ahead, and gradients seem to be younger than they are.
    "the token of a lost worker is not missed": (
        "gba:0",
        2,
        "-1; +1 > 1; " * 20 + "0 > 0; 0 > 0 = 0+0; 0 > 0; 1! > 1 = 0+1",
    ),
}


@pytest.mark.parametrize(("text", "workers", "course"), COURSES.values(), ids=COURSES)
def test_known_courses(text: str, workers: int, course: str) -> None:
    """`2 > 0 2 = 0+2`: after a push of worker 2 two go on, whose work is joined before.

    `-1` leaves, `+1` joins; the gradient of `1!` is stale.
    """
    driven = cluster(text, workers)
    for step in course.split("; "):
        answer, _, groups = step.partition("=")
        event, _, released = answer.partition(">")
        worker, is_stale = int(event.strip(" +-!")), "!" in event
        move = {"-": driven.leave, "+": driven.join}.get(event[0], driven.push)
        assert move(worker) == [int(one) for one in released.split()], step
        joined = ["+".join(map(str, group)) for group in driven.groups]
        assert (joined, driven.is_stale) == (groups.split(), is_stale), step


@pytest.mark.parametrize(
    ("text", "same", "may_join"),
    [
        ("ssp:1000000", "asp", True),
        ("ds-sync:1", "asp", True),
        ("gba:1", "asp", True),
        ("local-sgd:1", "bsp", True),
        ("selsync:0.3", "bsp", True),
        ("qsr:3:0.1", "local-sgd:3", True),
        ("local-sgd:1:semi-sync", "bsp", True),
        ("qsr:3:0.1:semi-sync", "local-sgd:3:semi-sync", True),
        # Nothing is done before the switch from which it would grow.
        ("local-sgd:3:growing", "local-sgd:3", True),
        # Who joins while others wait does not wait with them.
        ("ssp:0", "bsp", False),
        ("ds-sync:4", "bsp", False),
        ("dssp:2-2", "ssp:2", True),
        ("dssp:2-2:unbounded", "ssp:2", True),
    ],
)
@given(EVENTS)
def test_some_release_as_others_do(
    text: str, same: str, may_join: bool, events: list[Event]
) -> None:
    events = [one for one in events if may_join or one[0] != "join"]
    assert trace(text, 4, events) == trace(same, 4, events)
