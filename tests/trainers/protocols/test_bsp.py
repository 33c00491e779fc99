from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncswitch.trainers.protocols import BSP

from .protocol_contract import EVENTS, WORKERS, Cluster, ProtocolContract


class TestBSP(ProtocolContract):
    kind = BSP

    def test_its_round_is_one_update(self) -> None:
        assert BSP.aggregates

    @given(st.permutations(list(range(5))))
    def test_nobody_goes_on_until_the_last_has_pushed(self, order: list[int]) -> None:
        cluster = Cluster(BSP, 5)
        for worker in order[:-1]:
            assert cluster.push(worker) == []
        assert cluster.push(order[-1]) == [0, 1, 2, 3, 4]

    @given(WORKERS, EVENTS)
    @settings(max_examples=200)
    def test_a_round_ends_only_when_nobody_is_at_work(
        self, workers: int, events: list[tuple[str, int]]
    ) -> None:
        cluster = Cluster(BSP, workers)
        for event in events:
            before = set(cluster.running)
            cluster.released = []
            cluster.follow([event])
            if cluster.released:
                assert len(before) <= 1, "released while others were still at work"
                assert set(cluster.released) == cluster.active

    def test_when_the_missing_worker_leaves_the_others_go_on(self) -> None:
        cluster = Cluster(BSP, 3)
        cluster.push(0)
        cluster.push(2)
        assert cluster.leave(1) == [0, 2]

    def test_a_worker_that_leaves_after_its_push_is_not_waited_for_again(self) -> None:
        cluster = Cluster(BSP, 2)
        cluster.push(0)
        assert cluster.leave(0) == []
        assert cluster.push(1) == [1]

    def test_a_worker_that_joins_waits_for_the_next_round(self) -> None:
        cluster = Cluster(BSP, 2)
        cluster.push(0)
        assert cluster.join(5) == []
        assert cluster.push(1) == [0, 1, 5]

    def test_a_second_push_in_a_round_is_refused(self) -> None:
        cluster = Cluster(BSP, 2)
        cluster.push(0)
        with pytest.raises(ValueError, match="worker 0"):
            cluster.protocol.on_push(0, 1.0)
