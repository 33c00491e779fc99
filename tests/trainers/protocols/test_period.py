"""When the replicas of a training loop are averaged."""

from __future__ import annotations

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.protocols import AveragePeriod


def averages(period: AveragePeriod, rates: list[float]) -> list[int]:
    """The steps, from 1, of a loop with these rates that an average follows."""
    return [step for step, rate in enumerate(rates, 1) if period.ends(rate)]


@pytest.mark.parametrize("period", [3, "3", " local-sgd:3", "qsr:3:1e-9"])
def test_a_number_of_steps(period: int | str) -> None:
    assert averages(AveragePeriod(period), [0.1] * 10) == [3, 6, 9]


def test_the_quadratic_rule_takes_the_rate_at_which_a_period_begins() -> None:
    # (0.2 / rate)^2 is 1, 4 and 16: two steps at least, then four, then sixteen.
    rates = [0.2] * 3 + [0.1] * 5 + [0.05] * 20
    assert averages(AveragePeriod("qsr:2:0.2"), rates) == [2, 4, 8, 24]
    # Without a rate nothing is averaged.
    assert averages(AveragePeriod("qsr:1:0.1"), [0.1, 0.0, 0.0, 0.0]) == [1]


def test_an_average_for_something_else_begins_a_period() -> None:
    period = AveragePeriod(3)
    assert not period.ends(0.1)
    period.restart()
    assert averages(period, [0.1] * 4) == [3]


@pytest.mark.parametrize(
    "period",
    [
        0,
        -1,
        2.5,
        "often",
        "qsr:8",
        "qsr:8:1:averaged",
        "3:kept",
        "local-sgd:3:semi-sync",
        "3:growing",
        "selsync:0.1",
        "bsp",
        "",
    ],
)
def test_anything_else_is_refused(period: int | str) -> None:
    expected = f"period is {period!r}: give a number of steps from 1, or qsr:STEPS:ALPHA"
    with pytest.raises(UserError) as refusal:
        AveragePeriod(period)
    assert str(refusal.value) == expected
