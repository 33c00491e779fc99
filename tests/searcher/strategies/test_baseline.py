"""Measured thresholds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from syncswitch.searcher.strategies.baseline import THRESHOLD_RUNS, measured_threshold
from syncswitch.storage.errors import UserError


def test_it_is_the_prediction_limit_of_a_further_run() -> None:
    n = THRESHOLD_RUNS
    deviations = stats.t.ppf(0.95, n - 1) * math.sqrt(1 + 1 / n)
    # These have a standard deviation of 1.
    assert measured_threshold([-10.0, -11.0, -12.0]) == pytest.approx(deviations, rel=0.01)


def test_one_run_in_twenty_is_worse_by_chance() -> None:
    runs = np.random.default_rng(7).normal(-3.0, 0.2, (4000, THRESHOLD_RUNS + 1))
    worse = [
        statistic < -(measured_threshold(list(known)) or 0.0)
        for *known, last in runs
        for statistic in [last - np.mean(known)]
    ]
    assert np.mean(worse) == pytest.approx(0.05, abs=0.012)


@given(st.lists(st.floats(-1e6, 0, width=32), max_size=6))
def test_only_the_first_three_runs_count(accuracies: list[float]) -> None:
    known = accuracies[:THRESHOLD_RUNS]
    if len(known) < THRESHOLD_RUNS:
        assert measured_threshold(accuracies) is None
        return
    try:
        threshold = measured_threshold(accuracies)
    except UserError:
        assert max(known) - min(known) <= 1e-8 * max(1.0, -min(known))
        return
    assert threshold == measured_threshold(known)
    assert threshold is not None
    assert threshold > 0
    assert threshold == float(f"{threshold:.2g}")


def test_it_stays_below_what_can_be_lost() -> None:
    assert measured_threshold([-1.0, 0.0, -1.0], largest_loss=1.0) == 0.5


def test_runs_that_never_differ_say_nothing() -> None:
    with pytest.raises(UserError, match=r"3 runs .* measured the same, .*: give --threshold"):
        measured_threshold([-2.5, -2.5, -2.5])
