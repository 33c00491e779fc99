"""Which servers have the step of a lost worker."""

from __future__ import annotations

import pytest

from syncswitch.trainers.cluster.chief.recovery import TakenSteps, loss_of
from syncswitch.trainers.protocols.steps import Ticket


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("worker 1 is gone", "worker 1 is gone"),
        ("it was told to end", "worker 1: it was told to end"),
        ("worker 12 is gone", "worker 1: worker 12 is gone"),
    ],
)
def test_a_lost_worker_is_named_once(reason: str, said: str) -> None:
    assert loss_of(1, reason) == said


def test_a_step_is_done_once_all_servers_have_it() -> None:
    taken = TakenSteps(3, {})
    assert taken.by(5) == ()
    # Of the push before.
    assert not taken.add(5, 11, (10, 10, 10))
    assert taken.by(5) == ()
    assert not taken.add(5, 11, (11, 10, 10))
    assert taken.by(5) == (0,)
    # Another worker, that left out the first server.
    assert not taken.add(5, 12, (3, 3, 12))
    assert taken.by(5) == (0, 2)
    assert taken.add(5, 13, (4, 13, 4))
    assert taken.by(6) == ()


def test_of_a_single_server_a_push_is_whole_or_nothing() -> None:
    taken = TakenSteps(1, {})
    assert not taken.add(5, 11, (10,))
    assert taken.add(5, 11, (11,))


def test_a_run_that_goes_on_from_a_copy_knows_what_is_in_its_parts() -> None:
    taken = TakenSteps(2, {5: (1,), 6: ()})
    assert (taken.by(5), taken.by(6)) == ((1,), ())
    assert taken.add(5, 20, (20, 3))


def test_a_copy_has_what_was_pushed_since_and_before() -> None:
    taken = TakenSteps(2, {5: (1,), 6: (0,)})
    for number, ticket in enumerate((Ticket(0, 5), Ticket(1, 7), Ticket(2, 8)), start=30):
        taken.ask(ticket, number)
    pushed = [(30, 4), (31, 2), (1, 2)]
    found, applied = taken.at_mark(pushed)
    assert {step: set(by) for step, by in found.items() if by} == {5: {0, 1}, 6: {0}, 7: {0}}
    assert applied == [Ticket(0, 5)]
    assert taken.by(7) == (), "the step may still be done"
