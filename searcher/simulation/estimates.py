"""Means with 95 % intervals; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
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
    half = half_width(values)
    return Estimate(value, value - half, value + half)


def half_width(values: Sequence[float]) -> float:
    """Half of Student's interval of the mean; 0 for a single value."""
    n = len(values)
    if n < 2:
        return 0.0
    return student_half_width(statistics.stdev(values) / math.sqrt(n), n - 1, 0.95)
