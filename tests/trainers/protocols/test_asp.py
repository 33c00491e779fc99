from __future__ import annotations

from hypothesis import given

from syncswitch.trainers.protocols import ASP, Exchange
from tests.trainers.protocols.protocol_contract import (
    EVENTS,
    MORE_WORKERS,
    Event,
    ProtocolContract,
    cluster,
)


class TestASP(ProtocolContract):
    kind = ASP
    exchange = Exchange.PUSH
    texts = ("asp",)

    @given(MORE_WORKERS, EVENTS)
    def test_a_push_releases_the_pusher_and_only_it(self, more: int, events: list[Event]) -> None:
        asp = cluster("asp", 1 + more)
        asp.follow(events)
        for worker in sorted(asp.active):
            assert asp.push(worker) == [worker]

    @given(MORE_WORKERS, EVENTS)
    def test_every_member_is_always_at_work(self, more: int, events: list[Event]) -> None:
        asp = cluster("asp", 1 + more)
        for event in events:
            asp.follow([event])
            assert asp.running == asp.active
