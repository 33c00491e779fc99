"""The contract of all synchronization protocols, inherited by the test of each."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import (
    NOBODY,
    PROTOCOLS,
    Exchange,
    Release,
    SyncProtocol,
    choose_protocol,
)
from tests.properties import more_examples

# Workers beyond the fewest that the protocol can do with.
MORE_WORKERS = st.integers(0, 5)
# What happens next: the kind, and a number that says to which of the workers and how much later.
Event = tuple[str, int]
_KINDS = ("push", "push", "push", "leave", "join")
# Of bytes, as to draw each event alone takes longer than to play it.
EVENTS = st.binary(max_size=80).map(
    lambda drawn: [(_KINDS[one % len(_KINDS)], one // len(_KINDS)) for one in drawn]
)


class Cluster:
    """Drives a protocol as a cluster would, and checks each answer.

    Attributes:
        active: Members.
        running: Members that were released and have not pushed.
        pushes: By worker.
        steps: Of each member; who joins stands where the member with the fewest steps is.
        released: The workers of the last answer.
        groups: Its groups.
        is_stale: Whether it says that the gradient has no weight.
    """

    def __init__(self, protocol: SyncProtocol) -> None:
        self.protocol = protocol
        self.active = set(protocol.active)
        self.gone: set[int] = set()
        self.running: set[int] = set()
        self.pushes = dict.fromkeys(self.active, 0)
        self.steps = dict.fromkeys(self.active, 0)
        self.now_seconds = 0.0
        self._unjoined: set[int] = set()
        self._buffered: Counter[int] = Counter()
        self._take(protocol.start())

    @property
    def waiting(self) -> set[int]:
        return self.active - self.running

    def lead(self, worker: int) -> int:
        return self.steps[worker] - min(self.steps.values())

    def push(self, worker: int, step_seconds: float = 1.0) -> list[int]:
        self.now_seconds += step_seconds
        self.running.discard(worker)
        self.pushes[worker] += 1
        self.steps[worker] += 1
        self._unjoined.add(worker)
        self._buffered[worker] += 1
        return self._take(self.protocol.on_push(worker, self.now_seconds))

    def on_time(self, seconds: float) -> list[int]:
        self.now_seconds = seconds
        return self._take(self.protocol.on_time(seconds))

    def leave(self, worker: int) -> list[int]:
        self.active.discard(worker)
        self.running.discard(worker)
        del self.steps[worker]
        self.gone.add(worker)
        return self._take(self.protocol.remove(worker))

    def join(self, worker: int) -> list[int]:
        self.gone.discard(worker)
        self.active.add(worker)
        self.steps[worker] = min(self.steps.values(), default=0)
        self.pushes.setdefault(worker, 0)
        return self._take(self.protocol.add(worker))

    def follow(self, events: list[Event]) -> None:
        for kind, choice in events:
            if kind == "push" and self.running:
                running = sorted(self.running)
                self.push(running[choice % len(running)], step_seconds=0.5 + choice % 7)
            elif kind == "leave" and self.active:
                self.leave(sorted(self.active)[choice % len(self.active)])
            elif kind == "join":
                absent = sorted(self.gone | {max(self.pushes) + 1})
                self.join(absent[choice % len(absent)])

    def _take(self, release: Release) -> list[int]:
        released = list(release.workers)
        assert released == sorted(set(released)), "released workers ascend and are named once"
        assert set(released) <= self.active, "only a member is released"
        assert not set(released) & self.running, "nobody is released who is still at work"
        self._check_groups(release)
        self.running |= set(released)
        assert self.protocol.active == self.active
        assert self.running or not self.active, "somebody is at work as long as there are members"
        self.released, self.groups, self.is_stale = released, release.groups, release.is_stale
        return released

    def _check_groups(self, release: Release) -> None:
        joined = [worker for group in release.groups for worker in group]
        is_buffer = self.protocol.exchange is Exchange.BUFFER
        assert is_buffer or not release.is_stale
        assert is_buffer or len(joined) == len(set(joined)), "work is joined once"
        assert all(list(group) == sorted(group) for group in release.groups)
        match self.protocol.exchange:
            case Exchange.PUSH:
                assert not joined, "a push is applied at once"
            case Exchange.ROUND:
                assert set(joined) <= self._unjoined, "a gradient is joined once"
                assert not set(release.workers) & (self._unjoined - set(joined))
                self._unjoined -= set(joined)
            case Exchange.BUFFER:
                self._buffered.subtract(joined)
                assert min(self._buffered.values(), default=0) >= 0, "a gradient is joined once"
            case Exchange.REPLICA:
                assert set(joined) <= set(release.workers), "an average is for those that go on"
                assert all(len(group) > 1 for group in release.groups)


def cluster(text: str, workers: int) -> Cluster:
    return Cluster(choose_protocol(text).machine(range(workers)))


def trace(text: str, workers: int, events: list[Event]) -> list[list[int]]:
    """Whom each event releases."""
    driven = cluster(text, workers)
    result = [driven.released]
    for event in events:
        driven.released = []
        driven.follow([event])
        result.append(driven.released)
    return result


class ProtocolContract:
    """Attributes:
    kind: The class.
    exchange: What becomes of its gradients.
    texts: Choices of it, in the way in which they are recorded.
    """

    kind: ClassVar[type[SyncProtocol]]
    exchange: ClassVar[Exchange]
    texts: ClassVar[tuple[str, ...]]

    def clusters(self, more_workers: int) -> list[Cluster]:
        return [cluster(text, self.kind.least_workers + more_workers) for text in self.texts]

    def test_it_is_known_by_its_name_and_needs_its_fewest_workers(self) -> None:
        assert PROTOCOLS[self.kind.name] is self.kind
        assert self.texts
        for text in self.texts:
            choice = choose_protocol(text)
            assert (choice.kind, choice.exchange, choice.text) == (self.kind, self.exchange, text)
            with pytest.raises(ValueError, match="worker"):
                choice.machine([])
            with pytest.raises(ValueError, match="workers or more"):
                self.kind.check_cluster(self.kind.least_workers - 1, choice.options)

    @given(MORE_WORKERS, EVENTS, st.integers(0, 100))
    @more_examples(10)
    def test_no_order_of_events_blocks_anybody(
        self, more: int, events: list[Event], choice: int
    ) -> None:
        """Neither all nor the last to stay, nor who joins when all have left."""
        for one in self.clusters(more):
            assert one.released == sorted(one.active), "everybody may start"
            assert one.groups == ()
            for event in events:
                self.check_what_cannot_happen(one)
                one.follow([event])
            if one.active:
                last = sorted(one.active)[choice % len(one.active)]
                for worker in sorted(one.active - {last}):
                    one.leave(worker)
                for _ in range(3):
                    assert one.running == {last}
                    one.push(last)
                one.leave(last)
            assert not one.running
            assert one.join(0) == [0]

    def check_what_cannot_happen(self, one: Cluster) -> None:
        """It changes nothing, or is refused."""
        assert one.protocol.remove(max(one.pushes) + 1) == NOBODY
        for worker in sorted(one.gone):
            assert one.protocol.on_push(worker, one.now_seconds) == NOBODY
            assert one.protocol.remove(worker) == NOBODY
        for worker in sorted(one.active):
            assert one.protocol.add(worker) == NOBODY
        for worker in sorted(one.waiting):
            with pytest.raises(ValueError, match=f"worker {worker} has no step"):
                one.protocol.on_push(worker, one.now_seconds)
