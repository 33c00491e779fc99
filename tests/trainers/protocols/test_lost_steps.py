"""Segments whose workers are lost, come back and are told to leave."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.protocols.steps import Advance, Group, Groups, SegmentSteps, Ticket
from tests.trainers.protocols.test_steps import (
    BATCHES,
    CHOICES,
    LENGTH,
    START,
    WORKERS,
    batches_of,
)


class Troubled:
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
        self.away: set[int] = set()
        self.leaving: set[int] = set()
        self.workers = range(workers)
        self.out: dict[int, Ticket] = {}
        self.finished: list[int] = []
        self.applied: set[int] = set()
        self._waiting: defaultdict[int, list[int]] = defaultdict(list)
        self._now_seconds = 0.0
        machine = choose_protocol(text).machine(self.workers)
        batches = batches_of(text, batches)
        self.steps = SegmentSteps(machine, start, start + length, undone, batches)
        self._take(self.steps.start())

    def push(self, worker: int) -> None:
        self._now_seconds += 1.0
        steps = self.out.pop(worker).worker_steps
        self.finished += steps
        if self.steps.exchange in (Exchange.ROUND, Exchange.BUFFER):
            self._waiting[worker] += steps
        else:
            self.applied.update(steps)
        self._join(self.steps.push(worker, self._now_seconds))
        if worker in self.leaving:
            self.away.add(worker)
        self._take(self.steps.hand_out())

    def lose(self, worker: int) -> None:
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

    def happen(self, data: st.DataObject) -> None:
        moves = [(self.push, worker) for worker in sorted(self.out)]
        present = [one for one in self.workers if one not in self.away | self.leaving]
        if len(present) > 1:
            moves += [(move, worker) for worker in present for move in (self.lose, self.leave)]
        moves += [(self.come_back, worker) for worker in sorted(self.away)]
        move, worker = data.draw(st.sampled_from(moves), label="move")
        move(worker)

    def happen_often(self, moves: int, data: st.DataObject) -> None:
        for _ in range(moves):
            if self.steps.is_over:
                break
            self.happen(data)

    def to_its_end(self) -> None:
        for worker in sorted(self.away):
            self.come_back(worker)
        while self.out:
            self.push(min(self.out))

    def _join(self, groups: Groups) -> None:
        if self.steps.exchange in (Exchange.ROUND, Exchange.BUFFER):
            for group in groups:
                steps = tuple(self._waiting[worker].pop(0) for worker in group.workers)
                assert group.worker_steps in ((), steps)
                self.applied |= set(steps)

    def _take(self, advance: Advance) -> None:
        self._join(advance.groups)
        for ticket in advance.tickets:
            assert ticket.worker not in self.out, "a worker does one step at a time"
            assert ticket.worker not in self.away, "who is away gets nothing"
            assert ticket.worker not in self.leaving
            self.out[ticket.worker] = ticket
        assert self.steps.out == set(self.out)


@given(CHOICES, WORKERS, START, LENGTH, BATCHES, st.integers(0, 60), st.data())
def test_whoever_is_lost_every_step_is_finished_once_and_counted_once(
    text: str,
    workers: int,
    start: int,
    length: int,
    batches: int,
    moves: int,
    data: st.DataObject,
) -> None:
    troubled = Troubled(text, workers, start, length, (), batches)
    troubled.happen_often(moves, data)
    troubled.to_its_end()
    assert troubled.steps.is_over
    assert sorted(troubled.finished) == list(range(start, start + length))
    assert troubled.steps.done == start + length


@given(CHOICES, WORKERS, START, LENGTH, BATCHES, st.integers(0, 30), st.data())
def test_cut_short_it_finishes_all_that_was_begun_and_nothing_else(
    text: str,
    workers: int,
    start: int,
    length: int,
    batches: int,
    moves: int,
    data: st.DataObject,
) -> None:
    troubled = Troubled(text, workers, start, length, (), batches)
    troubled.happen_often(moves, data)
    troubled.steps.cut()
    out = (ticket.worker_steps for ticket in troubled.out.values())
    begun = {*troubled.finished, *itertools.chain(*out)}
    troubled.to_its_end()
    assert troubled.steps.is_over
    assert len(troubled.finished) == len(set(troubled.finished))
    assert begun <= set(troubled.finished)
    assert sorted(troubled.finished) == list(range(start, troubled.steps.done))


@given(CHOICES, WORKERS, START, LENGTH, BATCHES, st.integers(0, 30), st.data())
def test_from_any_moment_others_may_do_what_is_undone(
    text: str,
    workers: int,
    start: int,
    length: int,
    batches: int,
    moves: int,
    data: st.DataObject,
) -> None:
    troubled = Troubled(text, workers, start, length, (), batches)
    troubled.happen_often(moves, data)
    steps = troubled.steps
    undone = steps.undone()
    assert undone == sorted(set(range(start, steps.next_step)) - troubled.applied)
    assert steps.done == steps.next_step - len(undone)
    left = start + length - steps.done
    other = Troubled(text, workers, steps.done, left, undone, batches)
    other.to_its_end()
    assert other.steps.is_over
    assert other.steps.done == start + length
    assert sorted([*troubled.applied, *other.finished]) == list(range(start, start + length))


def test_tickets_that_were_out_come_back_as_they_were() -> None:
    """Some servers may have a part of one."""
    machine = choose_protocol("asp").machine(range(4))
    steps = SegmentSteps(machine, 10, 23, batches=3)
    tickets = [Ticket(0, 10, 3), Ticket(1, 13, 3), Ticket(2, 16, 3), Ticket(3, 19, 3)]
    assert steps.start() == Advance((), tuple(tickets))
    steps.push(1, 1.0)
    assert steps.done == 13
    assert steps.hand_out() == Advance((), (Ticket(1, 22, 1),))
    assert steps.undone(tickets[:1]) == [16, 17, 18, 19, 20, 21, 22]
    assert steps.next_step == 23
    steps.lose(3)
    steps.push(2, 2.0)
    assert steps.hand_out() == Advance((), (Ticket(2, 19, 3),))
    again = SegmentSteps(choose_protocol("asp").machine(range(4)), 16, 23, steps.undone(), 3)
    assert again.start() == Advance((), (Ticket(0, 10, 3), Ticket(1, 19, 3), Ticket(2, 22, 1)))


def test_a_step_that_is_known_to_be_applied_is_not_undone() -> None:
    steps = SegmentSteps(choose_protocol("asp").machine(range(3)), 0, 9)
    steps.start()
    steps.push(1, 1.0)
    steps.hand_out()
    assert steps.undone() == [0, 2, 3]
    assert steps.undone([Ticket(2, 2), Ticket(0, 7)]) == [0, 3], "worker 0 has another step now"


def test_a_lost_round_is_joined_without_the_lost_one_who_may_join_the_next() -> None:
    steps = SegmentSteps(choose_protocol("bsp").machine(range(3)), 0, 9)
    steps.start()
    steps.push(0, 1.0)
    steps.push(2, 2.0)
    assert steps.lose(1) == (Group((0, 2)),)
    assert steps.hand_out() == Advance((), (Ticket(0, 1), Ticket(2, 3)))
    assert steps.join(1) == ()
    assert steps.hand_out() == Advance()
    steps.push(0, 3.0)
    assert steps.push(2, 4.0) == (Group((0, 2)),)
    assert steps.hand_out() == Advance((), (Ticket(0, 4), Ticket(1, 5), Ticket(2, 6)))


def test_who_had_nothing_left_to_do_does_the_step_of_a_lost_one() -> None:
    steps = SegmentSteps(choose_protocol("asp").machine(range(2)), 0, 2)
    steps.start()
    steps.push(0, 1.0)
    assert steps.hand_out() == Advance()
    assert steps.lose(1) == ()
    assert steps.hand_out() == Advance((), (Ticket(0, 1),))
    steps.push(0, 2.0)
    assert steps.is_over
    assert steps.done == 2


def test_a_stopped_segment_gives_up_the_steps_of_the_lost() -> None:
    steps = SegmentSteps(choose_protocol("asp").machine(range(2)), 0, 10)
    steps.start()
    steps.stop()
    steps.lose(1)
    assert steps.hand_out() == Advance()
    steps.push(0, 1.0)
    assert steps.hand_out() == Advance()
    assert steps.is_over
