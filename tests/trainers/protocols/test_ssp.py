from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import SSP, Exchange
from tests.properties import more_examples
from tests.trainers.protocols.protocol_contract import (
    EVENTS,
    MORE_WORKERS,
    Event,
    ProtocolContract,
    cluster,
    trace,
)

LEADS = st.integers(0, 5)


class TestSSP(ProtocolContract):
    kind = SSP
    exchange = Exchange.PUSH
    texts = ("ssp:0", "ssp:1", "ssp:3")

    @given(LEADS, MORE_WORKERS, EVENTS)
    @more_examples(20)
    def test_those_wait_who_are_too_far_ahead_and_nobody_else(
        self, lead: int, more: int, events: list[Event]
    ) -> None:
        ssp = cluster(f"ssp:{lead}", 2 + more)
        for event in events:
            ssp.released = []
            ssp.follow([event])
            assert all(ssp.lead(worker) <= lead for worker in ssp.released)
            assert all(ssp.lead(worker) > lead for worker in ssp.waiting)

    @given(LEADS, MORE_WORKERS, EVENTS)
    def test_the_slowest_is_never_blocked(self, lead: int, more: int, events: list[Event]) -> None:
        ssp = cluster(f"ssp:{lead}", 2 + more)
        for event in events:
            ssp.follow([event])
            assert all(worker in ssp.running for worker in ssp.active if ssp.lead(worker) == 0)

    @given(MORE_WORKERS, EVENTS)
    def test_without_a_limit_it_is_asp(self, more: int, events: list[Event]) -> None:
        assert trace("ssp:1000000", 2 + more, events) == trace("asp", 2 + more, events)

    @given(MORE_WORKERS, EVENTS.map(lambda events: [one for one in events if one[0] != "join"]))
    def test_with_lead_0_it_waits_as_bsp_does(self, more: int, events: list[Event]) -> None:
        assert trace("ssp:0", 2 + more, events) == trace("bsp", 2 + more, events)

    def test_those_who_waited_for_a_worker_that_leaves_go_on(self) -> None:
        ssp = cluster("ssp:1", 3)
        ssp.push(0)
        assert ssp.push(0) == []
        ssp.push(2)
        assert ssp.leave(1) == [0]

    def test_who_joins_stands_where_the_slowest_is(self) -> None:
        ssp = cluster("ssp:1", 2)
        for _ in range(4):
            ssp.push(0)
            ssp.push(1)
        assert ssp.join(2) == [2]
        assert ssp.push(0) == [0]
        assert ssp.push(0) == [], "two ahead of workers 1 and 2"
        ssp.push(1)
        assert ssp.push(2) == [0, 2]

    def test_who_comes_back_has_no_lead_and_no_debt(self) -> None:
        ssp = cluster("ssp:1", 2)
        ssp.push(0)
        assert ssp.leave(1) == []
        for _ in range(5):
            assert ssp.push(0) == [0]
        assert ssp.join(1) == [1]
        assert ssp.push(0) == [0]
        assert ssp.push(0) == []
        assert ssp.push(1) == [0, 1]
