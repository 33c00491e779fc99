"""Confidence intervals, wherever one is told."""

from __future__ import annotations


def half_width(standard_error: float, freedom: int, confidence: float) -> float:
    """Half of Student's interval.

    Args:
        standard_error: Of what is estimated.
        freedom: Degrees of freedom of that, 1 or more.
        confidence: Above 0 and below 1, such as 0.95.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2)) * standard_error
