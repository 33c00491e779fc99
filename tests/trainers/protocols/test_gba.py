from __future__ import annotations

from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import GBA, Exchange, Release, choose_protocol
from tests.properties import more_examples
from tests.trainers.protocols.play import play_choice
from tests.trainers.protocols.protocol_contract import (
    EVENTS,
    MORE_WORKERS,
    Cluster,
    Event,
    ProtocolContract,
    trace,
)

IOTAS = st.integers(0, 4)


class Buffer(Cluster):
    """Gives every step the number of the update for which it is handed out, and keeps the buffer.

    Attributes:
        updates: Sizes of those so far.
        ages: Of the gradients that have arrived: updates by which each came too late.
        weights: Whether each of them has weight.
    """

    def __init__(self, iota: int, workers: int) -> None:
        self.updates: list[int] = []
        self.ages: list[int] = []
        self.weights: list[bool] = []
        self._due: dict[int, int] = {}
        self._buffer: list[int] = []
        self._places = workers
        super().__init__(choose_protocol(f"gba:{iota}").machine(range(workers)))

    def push(self, worker: int, step_seconds: float = 1.0) -> list[int]:
        self.ages.append(len(self.updates) - self._due.pop(worker))
        self._buffer.append(worker)
        return super().push(worker, step_seconds)

    def leave(self, worker: int) -> list[int]:
        self._due.pop(worker, None)
        return super().leave(worker)

    def _take(self, release: Release) -> list[int]:
        if len(self.ages) > len(self.weights):
            self.weights.append(not release.is_stale)
        for group in release.groups:
            assert group == tuple(sorted(self._buffer)), "all that are there, and nothing else"
            assert len(group) == self._places or not self.active
            self.updates.append(len(group))
            self._buffer.clear()
        assert len(self._buffer) < self._places
        released = super()._take(release)
        for worker in released:
            taken = len(self._buffer) + len(self._due)
            self._due[worker] = len(self.updates) + int(Fraction(taken, self._places))
        return released


class TestGBA(ProtocolContract):
    kind = GBA
    exchange = Exchange.BUFFER
    texts = ("gba:0", "gba:1", "gba:3")

    @given(IOTAS, MORE_WORKERS, EVENTS)
    @more_examples(20)
    def test_updates_are_of_one_size_and_nothing_too_old_has_weight(
        self, iota: int, more: int, events: list[Event]
    ) -> None:
        """The last one may be smaller, when nobody is left."""
        gba = Buffer(iota, 2 + more)
        gba.follow(events)
        assert gba.weights == [age <= iota for age in gba.ages]
        for worker in sorted(gba.active):
            gba.leave(worker)
        assert sum(gba.updates) == len(gba.ages), "each gradient is in one update"

    @given(IOTAS, MORE_WORKERS, EVENTS)
    def test_nobody_waits(self, iota: int, more: int, events: list[Event]) -> None:
        assert trace(f"gba:{iota}", 2 + more, events) == trace("asp", 2 + more, events)

    @given(IOTAS, MORE_WORKERS, st.data())
    def test_of_workers_that_keep_in_step_each_update_has_one_gradient_with_weight(
        self, iota: int, more: int, data: st.DataObject
    ) -> None:
        gba = Buffer(iota, 2 + more)
        for _ in range(5):
            for worker in data.draw(st.permutations(range(2 + more))):
                gba.push(worker)
            assert gba.groups == (tuple(range(2 + more)),)
        assert all(gba.weights)

    @pytest.mark.parametrize(("iota", "has_weight"), [(0, False), (2, False), (3, True)])
    def test_a_slow_worker_is_as_late_as_there_were_updates(
        self, iota: int, has_weight: bool
    ) -> None:
        """At 5.5 s three others have pushed 15 gradients: three buffers of four are full."""
        slow = [
            push.release
            for push in islice(play_choice(f"gba:{iota}", (1.0, 1.0, 1.0, 5.5)), 16)
            if push.worker == 3
        ]
        assert [not release.is_stale for release in slow] == [has_weight]

    def test_one_worker_alone_may_fill_the_buffer(self) -> None:
        gba = Buffer(1, 3)
        for _ in range(4):
            gba.push(0)
        assert gba.updates == [3]
        gba.push(2)
        gba.push(1)
        assert gba.groups == ((0, 1, 2),)
        assert gba.weights == [True] * 6, "the others are one update behind"
        gba.push(0)
        gba.push(0)
        gba.push(1)
        assert gba.groups == ((0, 0, 1),)

    def test_the_token_of_a_lost_worker_is_not_missed(self) -> None:
        """Else the others' would run ahead, and gradients seem to be younger than they are."""
        gba = Buffer(0, 2)
        for _ in range(20):
            gba.leave(1)
            gba.join(1)
        gba.push(0)
        gba.push(0)
        gba.push(0)
        gba.push(1)
        assert gba.weights == [True, True, True, False]

    def test_what_is_in_the_buffer_waits_for_those_left_and_then_goes_alone(self) -> None:
        gba = Buffer(2, 3)
        gba.push(0)
        gba.push(1)
        gba.leave(0)
        gba.leave(1)
        assert gba.groups == ()
        gba.leave(2)
        assert gba.groups == ((0, 1),)
        assert gba.join(1) == [1]
        for _ in range(3):
            gba.push(1)
        assert gba.updates == [2, 3]
