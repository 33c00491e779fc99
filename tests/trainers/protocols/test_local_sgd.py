from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import Exchange, LocalSGD
from tests.properties import more_examples
from tests.trainers.protocols.protocol_contract import (
    EVENTS,
    MORE_WORKERS,
    PUSHES,
    Event,
    ProtocolContract,
    cluster,
    trace,
)

PERIODS = st.integers(1, 5)


class TestLocalSGD(ProtocolContract):
    kind = LocalSGD
    exchange = Exchange.REPLICA
    texts = ("local-sgd:1", "local-sgd:2", "local-sgd:5")

    @given(PERIODS, MORE_WORKERS, PUSHES)
    def test_everybody_does_the_steps_of_a_period_between_two_averages(
        self, period: int, more: int, events: list[Event]
    ) -> None:
        sgd = cluster(f"local-sgd:{period}", 2 + more)
        averages = 0
        for event in events:
            sgd.follow([event])
            averages += len(sgd.groups)
            for worker, pushes in sgd.pushes.items():
                assert averages * period <= pushes <= (averages + 1) * period
                assert (worker in sgd.running) == (pushes < (averages + 1) * period)
            if sgd.groups:
                assert sgd.groups == (tuple(sorted(sgd.active)),)

    @given(PERIODS, MORE_WORKERS, EVENTS)
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

    @given(MORE_WORKERS, EVENTS)
    def test_periods_of_one_step_wait_as_bsp_does(self, more: int, events: list[Event]) -> None:
        assert trace("local-sgd:1", 2 + more, events) == trace("bsp", 2 + more, events)

    def test_who_joins_starts_with_the_next_period(self) -> None:
        sgd = cluster("local-sgd:2", 2)
        sgd.push(0)
        assert sgd.join(7) == []
        sgd.push(0)
        sgd.push(1)
        assert sgd.push(1) == [0, 1, 7]
        assert sgd.groups == ((0, 1),)

    def test_a_replica_that_left_is_in_no_average(self) -> None:
        sgd = cluster("local-sgd:1", 3)
        sgd.push(2)
        sgd.leave(2)
        sgd.push(1)
        assert sgd.push(0) == [0, 1]
        assert sgd.groups == ((0, 1),)
