from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.protocols.steps import Advance, Group, SegmentSteps, Ticket

CHOICES = st.sampled_from(
    [
        "bsp",
        "asp",
        "ssp:0",
        "ssp:2",
        "dssp:1-4",
        "dssp:0-3:unbounded",
        "ds-sync:1",
        "ds-sync:2",
        "ds-sync:3",
        "local-sgd:1",
        "local-sgd:3",
        "gba:0",
        "gba:2",
    ]
)
WORKERS = st.integers(2, 6)
START = st.integers(0, 50)
LENGTH = st.integers(0, 40)
BATCHES = st.integers(1, 4)


def batches_of(text: str, batches: int) -> int:
    """What is joined has one each."""
    return batches if choose_protocol(text).exchange is Exchange.PUSH else 1


class Driver:
    """Does the steps of a segment in the order that hypothesis draws, and checks each answer.

    Attributes:
        out: Tickets of steps under way, by worker.
        handed_out: Worker-steps, in their order.
    """

    def __init__(self, text: str, workers: int, start: int, length: int, batches: int = 1) -> None:
        self.workers = set(range(workers))
        self.start, self.end = start, start + length
        machine = choose_protocol(text).machine(self.workers)
        self.batches = batches_of(text, batches)
        self.steps = SegmentSteps(machine, start, self.end, batches=self.batches)
        self.out: dict[int, Ticket] = {}
        self.handed_out: list[int] = []
        self._unjoined: Counter[int] = Counter()
        self._now_seconds = 0.0
        self._take(self.steps.start())

    def push(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.out)), label="worker")
        self._now_seconds += data.draw(st.integers(1, 5), label="seconds")
        del self.out[worker]
        self._unjoined[worker] += 1
        groups = self.steps.push(worker, self._now_seconds)
        advance = self.steps.hand_out()
        self._take(Advance((*groups, *advance.groups), advance.tickets))

    def drain(self, data: st.DataObject) -> None:
        while self.out:
            self.push(data)

    def _take(self, advance: Advance) -> None:
        joined = [worker for group in advance.groups for worker in group.workers]
        is_buffer = self.steps.exchange is Exchange.BUFFER
        assert is_buffer or len(joined) == len(set(joined))
        assert is_buffer or set(joined) <= self.workers - self.out.keys(), "it is finished"
        if is_buffer or self.steps.exchange is Exchange.ROUND:
            assert Counter(joined) <= self._unjoined, "a gradient is joined once"
            self._unjoined -= Counter(joined)
        else:
            self._unjoined.clear()
        for ticket in advance.tickets:
            assert ticket.worker not in self.out, "a worker does one step at a time"
            assert is_buffer or ticket.worker not in self._unjoined, "its gradient is joined before"
            self.out[ticket.worker] = ticket
            self.handed_out += ticket.worker_steps
            is_last = ticket.worker_steps.stop == self.end
            assert ticket.batches == self.batches or (is_last and ticket.batches < self.batches)
        assert self.handed_out == list(range(self.start, self.start + len(self.handed_out)))
        assert self.start + len(self.handed_out) <= self.end, "nothing beyond the end"
        counted = self.steps.done - self.start
        out = sum(ticket.batches for ticket in self.out.values())
        assert counted + out + self._unjoined.total() == len(self.handed_out)


@given(CHOICES, WORKERS, START, LENGTH, BATCHES, st.data())
def test_every_step_is_handed_out_once_and_counted_once(
    text: str, workers: int, start: int, length: int, batches: int, data: st.DataObject
) -> None:
    driver = Driver(text, workers, start, length, batches)
    driver.drain(data)
    assert driver.handed_out == list(range(start, start + length))
    assert driver.steps.done == driver.end


@given(CHOICES, WORKERS, START, LENGTH, st.integers(0, 40), st.data())
def test_a_stop_lets_steps_under_way_end_and_no_other_start(
    text: str, workers: int, start: int, length: int, pushes: int, data: st.DataObject
) -> None:
    driver = Driver(text, workers, start, length)
    for _ in range(pushes):
        if driver.out:
            driver.push(data)
    driver.steps.stop()
    handed_out = list(driver.handed_out)
    driver.drain(data)
    assert driver.handed_out == handed_out
    assert driver.steps.done == start + len(handed_out)


@given(CHOICES, WORKERS, START)
def test_an_empty_segment_is_over_at_its_start(text: str, workers: int, start: int) -> None:
    driver = Driver(text, workers, start, 0)
    assert not driver.out
    assert driver.steps.done == start


def test_the_last_round_is_short_when_the_steps_do_not_go_round() -> None:
    steps = SegmentSteps(choose_protocol("bsp").machine(range(3)), 10, 15)
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


def test_replicas_that_have_nobody_left_to_wait_for_are_averaged_at_the_end() -> None:
    steps = SegmentSteps(choose_protocol("ds-sync:2").machine(range(4)), 0, 5)
    steps.start()
    steps.push(0, 1.0)
    assert steps.push(1, 2.0) == (Group((0, 1)),)
    assert steps.hand_out() == Advance((), (Ticket(0, 4),))
    assert steps.push(0, 3.0) == (), "worker 2 is still in round 0"
    steps.push(2, 4.0)
    assert steps.push(3, 5.0) == (Group((2, 3)),)
    assert steps.hand_out() == Advance()
    assert steps.done == 5


def test_each_gradient_in_a_buffer_is_known_by_its_step() -> None:
    steps = SegmentSteps(choose_protocol("gba:0").machine(range(2)), 10, 17)
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


def test_stopped_between_the_join_and_the_next_steps_it_hands_out_nothing() -> None:
    steps = SegmentSteps(choose_protocol("bsp").machine(range(2)), 0, 100)
    steps.start()
    steps.push(0, 1.0)
    assert steps.push(1, 2.0) == (Group((0, 1)),)
    steps.stop()
    assert steps.hand_out() == Advance()
    assert steps.done == 2
