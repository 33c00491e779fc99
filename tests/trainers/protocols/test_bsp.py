from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import BSP, Exchange
from tests.properties import more_examples
from tests.trainers.protocols.protocol_contract import (
    EVENTS,
    MORE_WORKERS,
    Event,
    ProtocolContract,
    cluster,
)


class TestBSP(ProtocolContract):
    kind = BSP
    exchange = Exchange.ROUND
    texts = ("bsp",)

    @given(st.permutations(list(range(5))))
    def test_nobody_goes_on_until_the_last_has_pushed(self, order: list[int]) -> None:
        bsp = cluster("bsp", 5)
        for worker in order[:-1]:
            assert bsp.push(worker) == []
        assert bsp.push(order[-1]) == [0, 1, 2, 3, 4]
        assert bsp.groups == ((0, 1, 2, 3, 4),)

    @given(MORE_WORKERS, EVENTS)
    @more_examples(20)
    def test_a_round_ends_only_when_nobody_is_at_work(self, more: int, events: list[Event]) -> None:
        bsp = cluster("bsp", 1 + more)
        for event in events:
            before = set(bsp.running)
            bsp.released = []
            bsp.follow([event])
            if bsp.released:
                assert len(before) <= 1, "released while others were still at work"
                assert set(bsp.released) == bsp.active

    def test_when_the_missing_worker_leaves_the_others_go_on(self) -> None:
        bsp = cluster("bsp", 3)
        bsp.push(0)
        bsp.push(2)
        assert bsp.leave(1) == [0, 2]
        assert bsp.groups == ((0, 2),)

    def test_the_gradient_of_a_worker_that_left_since_counts_but_is_not_waited_for_again(
        self,
    ) -> None:
        bsp = cluster("bsp", 2)
        bsp.push(0)
        assert bsp.leave(0) == []
        assert bsp.push(1) == [1]
        assert bsp.groups == ((0, 1),)
        assert bsp.push(1) == [1]
        assert bsp.groups == ((1,),)

    def test_a_worker_that_joins_waits_for_the_next_round(self) -> None:
        bsp = cluster("bsp", 2)
        bsp.push(0)
        assert bsp.join(5) == []
        assert bsp.push(1) == [0, 1, 5]
        assert bsp.groups == ((0, 1),)
