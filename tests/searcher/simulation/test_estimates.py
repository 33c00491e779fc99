"""Intervals against textbook values."""

from __future__ import annotations

import pytest

from syncswitch.searcher.simulation.estimates import mean, ratio_of_means, share


def test_students_interval_of_a_mean() -> None:
    # Student's t with 2 degrees of freedom: 4.3027 standard errors.
    assert mean([1.0, 2.0, 3.0]).high == pytest.approx(2 + 4.3027 / 3**0.5, abs=1e-4)
    alone = mean([7.0])
    assert alone.low == alone.value == alone.high == 7.0


def test_wilsons_interval_of_a_share() -> None:
    # Wilson's own formula for 8 of 10.
    wilson = share([True] * 8 + [False] * 2)
    assert (wilson.low, wilson.high) == pytest.approx((49.016, 94.331), abs=1e-2)
    assert share([True] * 10).value == share([True] * 10).high == 100.0


def test_a_ratio_of_means() -> None:
    ratio = ratio_of_means([1.0, 2.0, 4.0], [2.0, 4.0, 6.0])
    assert ratio.value == pytest.approx(7 / 12)
    assert ratio.low < ratio.value < ratio.high
    proportional = ratio_of_means([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    assert proportional.low == proportional.value == proportional.high == 0.5
