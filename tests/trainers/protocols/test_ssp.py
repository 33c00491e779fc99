"""ASP, SSP, which limits its leads, and DSSP, which moves that limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.asp import ASP
from syncswitch.trainers.protocols.dssp import DSSP, Pushes, extra_steps
from syncswitch.trainers.protocols.ssp import SSP
from tests.properties import more_examples
from tests.trainers.protocols.protocol_contract import (
    EVENTS,
    MORE_WORKERS,
    Cluster,
    Event,
    ProtocolContract,
    cluster,
)

LOW = st.integers(0, 4)
RANGE = st.integers(0, 6)
# Eighths are exact in binary, so that both ways of computing see the same ties.
SECONDS = st.integers(0, 80).map(lambda eighths: eighths / 8)
PUSHES = st.tuples(SECONDS, SECONDS)


def dssp(low: int, more: int, range_steps: int, mode: str) -> tuple[Cluster, DSSP]:
    driven = cluster(f"dssp:{low}-{low + range_steps}:{mode}", 2 + more)
    assert isinstance(driven.protocol, DSSP)
    return driven, driven.protocol


class TestASP(ProtocolContract):
    kind = ASP
    exchange = Exchange.PUSH
    texts = ("asp",)


class TestSSP(ProtocolContract):
    kind = SSP
    exchange = Exchange.PUSH
    texts = ("ssp:0", "ssp:1", "ssp:3")

    @given(LOW, MORE_WORKERS, EVENTS)
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


class TestDSSP(ProtocolContract):
    kind = DSSP
    exchange = Exchange.PUSH
    texts = ("dssp:3-15", "dssp:0-2", "dssp:0-2:unbounded", "dssp:1-5:unbounded")

    @given(LOW, MORE_WORKERS, RANGE, EVENTS, st.sampled_from(["bounded", "unbounded"]))
    @more_examples(30)
    def test_leads_and_credit_stay_within_the_range_and_those_who_wait_have_none(
        self, low: int, more: int, range_steps: int, events: list[Event], mode: str
    ) -> None:
        driven, protocol = dssp(low, more, range_steps, mode)
        for event in events:
            driven.released = []
            driven.follow([event])
            leads = [driven.lead(worker) for worker in driven.released]
            assert mode == "unbounded" or all(lead <= low + range_steps for lead in leads)
            assert protocol.credit.keys() == driven.active
            assert all(0 <= credit <= range_steps for credit in protocol.credit.values())
            assert all(protocol.credit[worker] == 0 for worker in driven.waiting)
            assert all(driven.lead(worker) > low for worker in driven.waiting)

    def test_only_the_fastest_is_granted_steps(self) -> None:
        driven = cluster("dssp:0-9", 3)
        for worker, step_seconds in [(2, 1), (1, 1), (0, 8), (2, 1), (1, 1), (0, 8)]:
            driven.push(worker, step_seconds)
        # It is second 20; worker 0 pushes every 10 s, and so do the others that wait for it.
        # Of those with the fewest steps worker 0 counts: step 3 of worker 2 should end near 30.
        assert driven.push(2, 1) == [2]
        assert driven.push(2, 1) == [2], "pace 1 s: all 8 steps to second 30"
        assert isinstance(driven.protocol, DSSP)
        assert driven.protocol.credit[2] == 7
        assert driven.push(1, 1) == [], "second 23: its next step would end nearer to a push"

        assert driven.push(0, 7) == [0, 1]
        # From here two pushes come at once, which is no pace that a grant could follow.
        assert driven.push(0, 0) == []
        assert driven.push(1, 0) == [0, 1]
        assert driven.push(1, 0) == []
        assert driven.push(0, 0) == []
        assert driven.push(2, 1) == [0, 1, 2], "the slowest by now, it still spends its credit"
        assert driven.protocol.credit[2] == 6

    def test_who_comes_back_has_no_credit_and_no_history(self) -> None:
        # Two pushes of each worker, then worker 0 gets 5 steps, of which it has done one.
        driven = cluster("dssp:0-9", 2)
        protocol = driven.protocol
        assert isinstance(protocol, DSSP)
        driven.push(1, 8.0)
        driven.push(0, 1.0)
        driven.push(1, 7.0)
        driven.push(0, 1.0)
        assert driven.push(0, 1.0) == [0]
        credit = protocol.credit[0]
        assert credit > 0
        driven.leave(0)
        assert driven.join(0) == [0]
        assert protocol.credit[0] == 0
        assert driven.push(0, 1.0) == [], "one push is no pace"

    @given(PUSHES, PUSHES, st.integers(0, 12), st.integers(-3, 12))
    @more_examples(30)
    def test_the_controller_is_the_papers(
        self, fast: Pushes, slow: Pushes, range_steps: int, most_steps: int
    ) -> None:
        ends = [fast[0] + r * fast[1] for r in range(max(most_steps, 0) + 1)]
        foreseen = [slow[0] + (k + 1) * slow[1] for k in range(range_steps + 1)]
        gaps = [min(abs(push - end) for push in foreseen) for end in ends]
        assert extra_steps(fast, slow, range_steps, most_steps) == gaps.index(min(gaps))
