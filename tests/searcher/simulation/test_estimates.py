"""Intervals against textbook values."""

from __future__ import annotations

import pytest

from syncswitch.searcher.simulation.estimates import mean


def test_students_interval_of_a_mean() -> None:
    # Student's t with 2 degrees of freedom: 4.3027 standard errors.
    assert mean([1.0, 2.0, 3.0]).high == pytest.approx(2 + 4.3027 / 3**0.5, abs=1e-4)
    alone = mean([7.0])
    assert alone.low == alone.value == alone.high == 7.0
