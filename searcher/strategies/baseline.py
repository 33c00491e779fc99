"""The baseline that candidates are compared with: runs of the first protocol alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from syncswitch.storage.errors import OptionHint, UserError
from syncswitch.storage.records.goal import AllowedLoss

ROUNDING = 1e-9
"""Tolerance for ties: means of accuracies such as 0.95 are not exact in binary."""

_DIVERGED_BASELINES = 2


def check_baseline(runs_diverged: Iterable[bool]) -> None:
    """Raises UserError if several runs of the first protocol diverged, and most of them.

    A single one may be bad luck, and is made again with another seed.
    """
    runs = list(runs_diverged)
    diverged = sum(runs)
    if diverged >= _DIVERGED_BASELINES and 2 * diverged > len(runs):
        raise UserError(
            f"{diverged} of {len(runs)} runs without a switch diverged, so there is nothing to"
            " compare with: lower the learning rate of the training, or use fewer workers",
            code="baseline-diverged",
        )


THRESHOLD_RUNS = 3
"""Runs of the first protocol alone in which a threshold is measured if none is given."""

MEASURED = AllowedLoss(0.0, THRESHOLD_RUNS)
"""The loss that is allowed where none is given, and none is usual."""

_MOST_RUNS = 100
_SHARE = 0.95  # of further runs without a switch that shall lose no more than the threshold


def allowed_loss(threshold: float | None, runs: int | None) -> AllowedLoss | None:
    """Returns what a user allows; None if neither is given.

    Raises UserError if both are, or no threshold can be measured in so many runs.
    """
    if threshold is not None and runs is not None:
        raise UserError(
            "both say how much may be lost",
            parameter=("threshold", "threshold_runs"),
            remedy="leave out one of them",
        )
    if runs is not None and not THRESHOLD_RUNS <= runs <= _MOST_RUNS:
        raise UserError(
            parameter="threshold_runs",
            value=runs,
            allowed=f"a whole number, {THRESHOLD_RUNS} to {_MOST_RUNS}",
        )
    given = AllowedLoss(threshold or 0.0, runs or 0)
    return None if threshold is None and runs is None else given


def measured_threshold(
    accuracies: Sequence[float], largest_loss: float | None = None, runs: int = THRESHOLD_RUNS
) -> float | None:
    """Returns how much the metric varies from run to run without a switch, as a threshold.

    In three runs of the first protocol alone, which differ only in their seeds, it is 3.37 standard
    deviations. A further such run ends below their mean by that much once in 20 times: it is the
    one-sided 95 % prediction limit for one value of a normal distribution of unknown mean and
    variance, t(0.95; n - 1) * s * sqrt(1 + 1 / n) (Hahn and Meeker, Statistical Intervals, section
    4.8). A run that loses more has therefore lost it to the switch rather than to chance. Two runs
    would need 7.7 deviations, which would be far too uncertain. How much the last evaluations of
    one run wobble is no measure of this: a decayed learning rate calms them, and runs differ all
    the same.

    Args:
        accuracies: Results of runs of the first protocol alone that did not diverge, in the order
            in which they are asked for. Later ones than `runs` do not count, so that the threshold
            never changes.
        largest_loss: The most accuracy that a run can lose; None for no limit.
        runs: How many it is measured in, 3 to 100.

    Returns:
        The threshold, rounded to two digits; None while there are fewer runs. Raises UserError if
        all of them measured the same, which says nothing about chance.
    """
    counted = accuracies[:runs]
    if len(counted) < runs:
        return None
    deviation = statistics.stdev(counted)
    if deviation <= ROUNDING * max(1.0, *map(abs, counted)):
        raise UserError(
            f"{runs} runs without a switch measured the same, so they do not"
            " say how much worse a run may be",
            remedy=OptionHint("threshold"),
            code="parameter-missing",
        )
    from scipy.special import stdtrit  # it takes long to import

    deviations = float(stdtrit(runs - 1, _SHARE)) * math.sqrt(1 + 1 / runs)
    threshold = float(f"{deviations * deviation:.2g}")
    return threshold if largest_loss is None else min(threshold, largest_loss / 2)
