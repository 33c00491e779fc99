"""Segments whose workers are lost, come back and are told to leave; and those of nobody."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.protocols.steps import Advance, Group, Groups, SegmentSteps, Ticket
from tests.properties import more_examples

CHOICES = (
    *("bsp", "asp", "ssp:0", "ssp:2", "dssp:1-4", "dssp:0-3:unbounded"),
    *(
        "ds-sync:1",
        "ds-sync:2",
        "ds-sync:3",
        "local-sgd:1",
        "local-sgd:3",
        "local-sgd:2:semi-sync",
        "selsync:0.3",
        "gba:0",
        "gba:2",
    ),
)


class Driver:
    """Draws what happens next: a push, a loss, a return, a worker told to leave or to join.

    Attributes:
        out: Tickets of steps under way, by worker.
        finished: Worker-steps that were pushed.
        applied: Those that count: all of these, but of rounds those that were joined.
    """

    def __init__(
        self,
        text: str,
        workers: int,
        start: int,
        length: int,
        undone: Sequence[int] = (),
        batches: int = 1,
    ) -> None:
        self.text = text
        self.away: set[int] = set()
        self.leaving: set[int] = set()
        self.workers = range(workers)
        self.start, self.end = start, start + length
        self.out: dict[int, Ticket] = {}
        self.finished: list[int] = []
        self.applied: set[int] = set()
        self.has_lost = bool(undone)
        self._waiting: defaultdict[int, list[int]] = defaultdict(list)
        self._now_seconds = 0.0
        machine = choose_protocol(text).machine(self.workers)
        # Always one where work is joined.
        self.batches = batches if machine.exchange is Exchange.PUSH else 1
        self.steps = SegmentSteps(machine, start, self.end, undone, self.batches)
        self._is_joined = self.steps.exchange in (Exchange.ROUND, Exchange.BUFFER)
        self._take(self.steps.start())

    def push(self, worker: int) -> None:
        self._now_seconds += 1.0
        steps = self.out.pop(worker).worker_steps
        self.finished += steps
        if self._is_joined:
            self._waiting[worker] += steps
        else:
            self.applied.update(steps)
        self._join(self.steps.push(worker, self._now_seconds))
        if worker in self.leaving:
            self.away.add(worker)
        self._take(self.steps.hand_out())

    def lose(self, worker: int) -> None:
        self.has_lost = True
        self.out.pop(worker, None)
        self.away.add(worker)
        self._join(self.steps.lose(worker))
        self._take(self.steps.hand_out())

    def leave(self, worker: int) -> None:
        self._join(self.steps.leave(worker))
        (self.leaving if worker in self.out else self.away).add(worker)
        self._take(self.steps.hand_out())

    def come_back(self, worker: int) -> None:
        self.away.discard(worker)
        self.leaving.discard(worker)
        self._join(self.steps.join(worker))
        self._take(self.steps.hand_out())

    def happen(self, data: st.DataObject, *, is_quiet: bool) -> None:
        moves = [(self.push, worker) for worker in sorted(self.out)]
        present = [one for one in self.workers if one not in self.away | self.leaving]
        if len(present) > 1 and not is_quiet:
            moves += [(move, worker) for worker in present for move in (self.lose, self.leave)]
        moves += [(self.come_back, worker) for worker in sorted(self.away)]
        move, worker = data.draw(st.sampled_from(moves), label="move")
        move(worker)

    def happen_often(self, moves: int, data: st.DataObject) -> None:
        """Draws moves: with failures, or pushes alone."""
        is_quiet = data.draw(st.booleans(), label="quiet")
        for _ in range(moves):
            if self.steps.is_over:
                break
            self.happen(data, is_quiet=is_quiet)

    def to_its_end(self) -> None:
        for worker in sorted(self.away):
            self.come_back(worker)
        while self.out:
            self.push(min(self.out))

    def _join(self, groups: Groups) -> None:
        joined = [worker for group in groups for worker in group.workers]
        is_buffer = self.steps.exchange is Exchange.BUFFER
        assert is_buffer or len(joined) == len(set(joined))
        assert is_buffer or not set(joined) & self.out.keys(), "it is finished"
        for group in groups if self._is_joined else ():
            steps = tuple(self._waiting[worker].pop(0) for worker in group.workers)
            assert group.worker_steps in ((), steps), "a gradient is joined once"
            self.applied |= set(steps)

    def _take(self, advance: Advance) -> None:
        self._join(advance.groups)
        for ticket in advance.tickets:
            assert ticket.worker not in self.out, "a worker does one step at a time"
            assert ticket.worker not in self.away, "who is away gets nothing"
            assert ticket.worker not in self.leaving
            is_buffer = self.steps.exchange is Exchange.BUFFER
            assert is_buffer or not self._waiting[ticket.worker], "its gradient is joined before"
            assert ticket.worker_steps.stop <= self.end, "nothing beyond the end"
            is_last = ticket.worker_steps.stop == self.end
            assert self.has_lost or is_last or ticket.batches == self.batches
            assert ticket.batches <= self.batches
            self.out[ticket.worker] = ticket
        assert self.steps.out == set(self.out)
        assert self.steps.done == self.start + len(self.applied)
        if not self.has_lost:
            out = itertools.chain(*(ticket.worker_steps for ticket in self.out.values()))
            handed_out = sorted([*self.finished, *out])
            assert handed_out == list(range(self.start, self.steps.next_step)), "in their order"


DRIVERS = st.builds(
    Driver,
    st.sampled_from(CHOICES),
    workers=st.integers(2, 6),
    start=st.integers(0, 50),
    length=st.integers(0, 40),
    batches=st.integers(1, 4),
)


@given(DRIVERS, st.integers(0, 60), st.data())
@more_examples(2)
def test_whoever_is_lost_every_step_is_finished_once_and_counted_once(
    driver: Driver, moves: int, data: st.DataObject
) -> None:
    assert driver.start < driver.end or driver.steps.is_over
    driver.happen_often(moves, data)
    driver.to_its_end()
    assert driver.steps.is_over
    assert sorted(driver.finished) == list(range(driver.start, driver.end))
    assert driver.steps.done == driver.end


@given(DRIVERS, st.integers(0, 30), st.booleans(), st.data())
@more_examples(2)
def test_cut_short_or_stopped_it_finishes_what_was_begun_and_nothing_else(
    driver: Driver, moves: int, is_stopped: bool, data: st.DataObject
) -> None:
    """A step whose worker was lost is done by another one after a cut, and given up by a stop."""
    driver.happen_often(moves, data)
    (driver.steps.stop if is_stopped else driver.steps.cut)()
    out = (ticket.worker_steps for ticket in driver.out.values())
    begun = {*driver.finished, *itertools.chain(*out)}
    next_step = driver.steps.next_step
    driver.to_its_end()
    assert driver.steps.is_over
    assert driver.steps.next_step == next_step
    assert len(driver.finished) == len(set(driver.finished))
    assert begun <= set(driver.finished)
    if is_stopped:
        assert begun == set(driver.finished)
    else:
        assert sorted(driver.finished) == list(range(driver.start, driver.steps.done))


@given(DRIVERS, st.integers(0, 30), st.data())
@more_examples(2)
def test_from_any_moment_others_may_do_what_is_undone(
    driver: Driver, moves: int, data: st.DataObject
) -> None:
    driver.happen_often(moves, data)
    steps = driver.steps
    undone = steps.undone()
    assert undone == sorted(set(range(driver.start, steps.next_step)) - driver.applied)
    assert steps.done == steps.next_step - len(undone)
    left = driver.end - steps.done
    other = Driver(driver.text, len(driver.workers), steps.done, left, undone, driver.batches)
    other.to_its_end()
    assert other.steps.is_over
    assert other.steps.done == driver.end
    everything = sorted([*driver.applied, *other.finished])
    assert everything == list(range(driver.start, driver.end))


def segment(text: str, workers: int, *rest: Any) -> SegmentSteps:
    return SegmentSteps(choose_protocol(text).machine(range(workers)), *rest)


def test_the_last_round_is_short_when_the_steps_do_not_go_round() -> None:
    steps = segment("bsp", 3, 10, 15)
    assert steps.start() == Advance((), (Ticket(0, 10), Ticket(1, 11), Ticket(2, 12)))
    steps.push(2, 1.0)
    steps.push(0, 2.0)
    assert steps.done == 10, "a round counts as a whole"
    assert steps.push(1, 3.0) == (Group((0, 1, 2)),)
    assert steps.done == 13
    assert steps.hand_out() == Advance((), (Ticket(0, 13), Ticket(1, 14)))
    assert steps.push(0, 4.0) == ()
    assert steps.push(1, 5.0) == (Group((0, 1)),)
    assert steps.hand_out() == Advance()
    assert steps.done == 15


def test_each_gradient_in_a_buffer_is_known_by_its_step() -> None:
    steps = segment("gba:0", 2, 10, 17)
    steps.start()
    groups = []
    # Worker 1 is at its first step while two updates are made.
    for worker in (0, 0, 0, 0, 1, 0, 1):
        groups.append(steps.push(worker, 0.0))
        groups[-1] += steps.hand_out().groups
    assert groups == [
        (),
        (Group((0, 0), (10, 12)),),
        (),
        (Group((0, 0), (13, 14)),),
        (),
        (Group((0, 1), (15, 11), (11,)),),
        (Group((1,), (16,)),),
    ]
    assert steps.done == 17


def test_tickets_that_were_out_come_back_as_they_were() -> None:
    """Some servers may have applied a part of one."""
    steps = segment("asp", 4, 10, 23, (), 3)
    tickets = [Ticket(0, 10, 3), Ticket(1, 13, 3), Ticket(2, 16, 3), Ticket(3, 19, 3)]
    assert steps.start() == Advance((), tuple(tickets))
    steps.push(1, 1.0)
    assert steps.done == 13
    assert steps.hand_out() == Advance((), (Ticket(1, 22, 1),))
    # Worker 1 has another one now.
    assert steps.undone([tickets[0], Ticket(1, 13, 1)]) == [16, 17, 18, 19, 20, 21, 22]
    assert steps.next_step == 23
    steps.lose(3)
    steps.push(2, 2.0)
    assert steps.hand_out() == Advance((), (Ticket(2, 19, 3),))
    again = segment("asp", 4, 16, 23, steps.undone(), 3)
    assert again.start() == Advance((), (Ticket(0, 10, 3), Ticket(1, 19, 3), Ticket(2, 22, 1)))


def test_who_had_nothing_left_to_do_does_the_step_of_a_lost_one() -> None:
    steps = segment("asp", 2, 0, 2)
    steps.start()
    steps.push(0, 1.0)
    assert steps.hand_out() == Advance()
    steps.lose(1)
    assert steps.hand_out() == Advance((), (Ticket(0, 1),))
