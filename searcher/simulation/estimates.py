"""Means, ratios and shares over many searches, with 95 % intervals; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncswitch.storage.metrics import student_half_width


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def mean(values: Sequence[float]) -> Estimate:
    """Returns the mean with Student's interval, which has no width for a single value."""
    value = statistics.fmean(values)
    half = _half_width(values)
    return Estimate(value, value - half, value + half)


def ratio_of_means(values: Sequence[float], units: Sequence[float]) -> Estimate:
    """Returns the ratio of the means of pairs, with the interval of the linearised ratio."""
    unit = statistics.fmean(units)
    value = statistics.fmean(values) / unit
    half = _half_width([a - value * b for a, b in zip(values, units, strict=True)]) / unit
    return Estimate(value, value - half, value + half)


def share(flags: Iterable[bool]) -> Estimate:
    """Returns the percent of flags that are true, with Wilson's interval."""
    from scipy.stats import binomtest

    known = list(flags)
    result = binomtest(sum(known), len(known))
    interval = result.proportion_ci(method="wilson")
    return Estimate(100 * result.statistic, 100 * interval.low, 100 * interval.high)


def _half_width(values: Sequence[float]) -> float:
    n = len(values)
    if n < 2:
        return 0.0
    return student_half_width(statistics.stdev(values) / math.sqrt(n), n - 1, 0.95)
