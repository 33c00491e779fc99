"""What every synchronisation protocol keeps to; the test of each inherits it."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st

from syncswitch.trainers.protocols import PROTOCOLS, SyncProtocol

WORKERS = st.integers(1, 6)
# What happens next: the kind, and which worker among those to which it can happen.
EVENTS = st.lists(
    st.tuples(st.sampled_from(["push", "push", "push", "leave", "join"]), st.integers(0, 100)),
    max_size=80,
)


class Cluster:
    """Drives a protocol as a cluster would, and checks each answer.

    Attributes:
        running: Workers that were released and have not pushed.
        pushes: By worker.
    """

    def __init__(self, kind: type[SyncProtocol], workers: int) -> None:
        self.protocol = kind(range(workers))
        self.active = set(range(workers))
        self.gone: set[int] = set()
        self.running: set[int] = set()
        self.pushes = dict.fromkeys(range(workers), 0)
        self.now = 0.0
        self.released = self._take(self.protocol.start())

    def push(self, worker: int) -> list[int]:
        self.now += 1.0
        self.running.discard(worker)
        self.pushes[worker] += 1
        return self._take(self.protocol.on_push(worker, self.now))

    def leave(self, worker: int) -> list[int]:
        self.active.discard(worker)
        self.running.discard(worker)
        self.gone.add(worker)
        return self._take(self.protocol.remove(worker))

    def join(self, worker: int) -> list[int]:
        self.gone.discard(worker)
        self.active.add(worker)
        self.pushes.setdefault(worker, 0)
        return self._take(self.protocol.add(worker))

    def follow(self, events: list[tuple[str, int]]) -> None:
        for kind, choice in events:
            if kind == "push" and self.running:
                self.push(sorted(self.running)[choice % len(self.running)])
            elif kind == "leave" and self.active:
                self.leave(sorted(self.active)[choice % len(self.active)])
            elif kind == "join":
                absent = sorted(self.gone | {max(self.pushes) + 1})
                self.join(absent[choice % len(absent)])

    def _take(self, released: list[int]) -> list[int]:
        assert released == sorted(set(released)), "released workers ascend and are named once"
        assert set(released) <= self.active, "only a member is released"
        assert not set(released) & self.running, "nobody is released who is still at work"
        self.running |= set(released)
        assert self.protocol.active == self.active
        assert self.running or not self.active, "somebody is at work as long as there are members"
        self.released = released
        return released


class ProtocolContract:
    kind: ClassVar[type[SyncProtocol]]

    def test_it_is_known_by_its_name(self) -> None:
        assert PROTOCOLS[self.kind.name] is self.kind

    def test_it_needs_a_worker(self) -> None:
        try:
            self.kind([])
        except ValueError:
            return
        raise AssertionError("a protocol without workers would never release anybody")

    @given(WORKERS)
    def test_at_the_start_everybody_is_released(self, workers: int) -> None:
        assert Cluster(self.kind, workers).released == list(range(workers))

    @given(WORKERS, EVENTS)
    @settings(max_examples=200)
    def test_no_order_of_events_blocks_the_cluster(
        self, workers: int, events: list[tuple[str, int]]
    ) -> None:
        Cluster(self.kind, workers).follow(events)

    @given(WORKERS, EVENTS, st.integers(0, 100))
    def test_the_last_members_to_stay_are_never_blocked(
        self, workers: int, events: list[tuple[str, int]], choice: int
    ) -> None:
        cluster = Cluster(self.kind, workers)
        cluster.follow(events)
        if not cluster.active:
            return
        last = sorted(cluster.active)[choice % len(cluster.active)]
        for worker in sorted(cluster.active - {last}):
            cluster.leave(worker)
        for _ in range(3):
            assert cluster.running == {last}
            cluster.push(last)

    @given(WORKERS, EVENTS)
    def test_an_empty_cluster_starts_again_when_somebody_joins(
        self, workers: int, events: list[tuple[str, int]]
    ) -> None:
        cluster = Cluster(self.kind, workers)
        cluster.follow(events)
        for worker in sorted(cluster.active):
            cluster.leave(worker)
        assert not cluster.running
        assert cluster.join(0) == [0]

    def test_removing_a_stranger_releases_nobody(self) -> None:
        cluster = Cluster(self.kind, 2)
        assert cluster.protocol.remove(7) == []
        assert cluster.protocol.active == {0, 1}

    def test_adding_a_member_at_work_releases_nobody(self) -> None:
        cluster = Cluster(self.kind, 2)
        assert cluster.protocol.add(1) == []
