"""BSP, and local SGD, whose rounds are longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.bsp import BSP
from syncswitch.trainers.protocols.local_sgd import LocalSGD
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


class TestLocalSGD(ProtocolContract):
    kind = LocalSGD
    exchange = Exchange.REPLICA
    texts = ("local-sgd:1", "local-sgd:2", "local-sgd:5")

    @given(st.integers(1, 5), MORE_WORKERS, EVENTS)
    @more_examples(20)
    def test_an_average_is_of_those_that_did_all_steps_of_the_period(
        self, period: int, more: int, events: list[Event]
    ) -> None:
        sgd = cluster(f"local-sgd:{period}", 2 + more)
        left = dict.fromkeys(sgd.active, period)  # of the members of this period
        for event in events:
            before = dict(sgd.pushes)
            sgd.groups = ()
            sgd.released = []
            sgd.follow([event])
            left = {worker: steps for worker, steps in left.items() if worker in sgd.active}
            for worker in left:
                left[worker] -= sgd.pushes[worker] - before[worker]
            over = not any(left.values())
            assert sgd.groups == ((tuple(sorted(left)),) if over and len(left) > 1 else ())
            if over:
                assert set(sgd.released) == sgd.active
                left = dict.fromkeys(sgd.active, period)
            assert sgd.running == {worker for worker, steps in left.items() if steps}
