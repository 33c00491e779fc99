from __future__ import annotations

from hypothesis import given

from syncswitch.trainers.protocols import ASP

from .protocol_contract import EVENTS, WORKERS, Cluster, ProtocolContract


class TestASP(ProtocolContract):
    kind = ASP

    def test_each_push_is_an_update(self) -> None:
        assert not ASP.aggregates

    @given(WORKERS, EVENTS)
    def test_a_push_releases_the_pusher_and_only_it(
        self, workers: int, events: list[tuple[str, int]]
    ) -> None:
        cluster = Cluster(ASP, workers)
        cluster.follow(events)
        for worker in sorted(cluster.active):
            assert cluster.push(worker) == [worker]

    @given(WORKERS, EVENTS)
    def test_every_member_is_always_at_work(
        self, workers: int, events: list[tuple[str, int]]
    ) -> None:
        cluster = Cluster(ASP, workers)
        for event in events:
            cluster.follow([event])
            assert cluster.running == cluster.active

    def test_a_late_push_of_a_removed_worker_releases_nobody(self) -> None:
        protocol = ASP(range(2))
        protocol.start()
        protocol.remove(1)
        assert protocol.on_push(1, 1.0) == []
