from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import Exchange, Release, choose_protocol
from syncswitch.trainers.protocols.gba import GBA
from tests.properties import more_examples
from tests.trainers.protocols.protocol_contract import (
    EVENTS,
    MORE_WORKERS,
    Cluster,
    Event,
    ProtocolContract,
)


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

    @given(st.integers(0, 4), MORE_WORKERS, EVENTS)
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
