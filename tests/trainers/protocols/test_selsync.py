"""Protocols that look at the steps of replicas: SelSync, and QSR."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import Exchange, ReplicaStep
from syncswitch.trainers.protocols.qsr import QSR, period_steps
from syncswitch.trainers.protocols.selsync import SelSync
from tests.trainers.protocols.protocol_contract import Cluster, ProtocolContract, cluster


class TestSelSync(ProtocolContract):
    kind = SelSync
    exchange = Exchange.REPLICA
    texts = ("selsync:0", "selsync:0.25", "selsync:1000000", "selsync:1e-05")


class TestQSR(ProtocolContract):
    kind = QSR
    exchange = Exchange.REPLICA
    texts = ("qsr:1:0.1", "qsr:4:0.0175", "qsr:2:1e-07", "qsr:2:0.1:semi-sync:growing")


def averaged(driven: Cluster, steps: Sequence[ReplicaStep]) -> bool:
    """Whether a round ends with an average in which the workers make these steps."""
    driven.groups = ()
    for worker, step in zip(sorted(driven.active), steps, strict=True):
        driven.protocol.observe(worker, step)
        driven.push(worker)
    return bool(driven.groups)


def of_squares(*squares: float) -> list[ReplicaStep]:
    return [ReplicaStep(square, 0.1) for square in squares]


def settled(delta: float, workers: int = 2) -> Cluster:
    """Workers that have made the first 25 steps, with gradients of length 1."""
    driven = cluster(f"selsync:{delta:g}", workers)
    assert all(averaged(driven, of_squares(*[1.0] * workers)) for _ in range(25))
    return driven


class TestSelSyncAsks:
    # With two workers the smoothing factor is 0.02: a square of 13.5 moves the mean by 0.25.
    @pytest.mark.parametrize(
        ("squares", "is_asked"),
        [
            ((1.0, 1.0), False),
            ((1.0, 13.51), True),
            ((13.51, 1.0), True),
            ((1.0, 13.49), False),
            ((math.nan, 1.0), True),
            ((1.0, math.inf), True),
        ],
    )
    def test_if_one_gradient_has_changed_by_delta(
        self, squares: tuple[float, float], is_asked: bool
    ) -> None:
        assert averaged(settled(0.25), of_squares(*squares)) is is_asked

    def test_by_the_change_of_the_mean_and_not_by_the_mean(self) -> None:
        driven = settled(0.25)
        assert averaged(driven, of_squares(1.0, 26.0))  # the mean is 1.5 then
        assert not averaged(driven, of_squares(1.0, 20.0))  # by 0.37 of 1.5
        assert averaged(driven, of_squares(1.0, 40.0))
        assert averaged(settled(0.0), of_squares(1.0, 1.0)), "no change is allowed"

    def test_while_a_worker_that_came_back_is_new(self) -> None:
        driven = settled(0.25)
        driven.leave(1)
        driven.push(0)
        driven.join(1)
        driven.push(0)
        assert all(averaged(driven, of_squares(1.0, 1.0)) for _ in range(25))
        assert not averaged(driven, of_squares(1.0, 1.0))

    def test_without_anybody_who_looks(self) -> None:
        driven = settled(0.25)
        driven.groups = ()
        driven.push(0)
        driven.push(1)
        assert driven.groups == ((0, 1),)


def test_the_period_is_the_square_of_the_ratio() -> None:
    rates = (0.1, 0.05, 0.04, 0.2, 0.001, 1e-9, 0.0)
    steps = [2, 4, 6, 2, 10_000, 1_000_000, 1_000_000]
    assert [period_steps(2, 0.1, rate) for rate in rates] == steps


@given(st.floats(1e-6, 10.0), st.floats(1e-6, 10.0), st.floats(0.1, 1.0), st.integers(1, 100))
def test_a_lower_rate_never_shortens_the_period(
    alpha: float, rate: float, decay: float, least: int
) -> None:
    assert least <= period_steps(least, alpha, rate) <= period_steps(least, alpha, rate * decay)


def test_periods_follow_the_rate() -> None:
    driven = cluster("qsr:2:0.1", 2)
    rates = [0.1] * 6 + [0.05] * 10
    found = [averaged(driven, [ReplicaStep(1.0, rate)] * 2) for rate in rates]
    # The period that begins after the sixth step still is of the rate before.
    assert [number for number, one in enumerate(found, 1) if one] == [2, 4, 6, 8, 12, 16]
