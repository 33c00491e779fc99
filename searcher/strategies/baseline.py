"""The baseline that candidates are compared with: runs of the first protocol alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from syncswitch.searcher.strategies.observation import Observation
from syncswitch.storage.errors import UserError

ROUNDING = 1e-9
"""Means of accuracies such as 0.95 are not exact in binary; a tie must not depend on that."""

_DIVERGED_BASELINES = 2


def check_baseline(runs: Iterable[Observation]) -> None:
    """Raises UserError where several runs of the first protocol diverged, and most of them.

    One may be bad luck, and is made again with another seed.
    """
    runs = list(runs)
    diverged = sum(run.diverged for run in runs)
    if diverged >= _DIVERGED_BASELINES and 2 * diverged > len(runs):
        raise UserError(
            f"{diverged} of {len(runs)} runs of the first protocol alone diverged, so there is no"
            " accuracy to compare with: the learning rate is too high for this number of workers;"
            " lower it in the workload, or use fewer --workers"
        )


THRESHOLD_RUNS = 3
"""How many runs of the first protocol alone a threshold is measured in, where nobody gave one."""

# Student's t with 2 degrees of freedom at 95 %, 2.920, times sqrt(1 + 1 / 3).
_DEVIATIONS = 3.372


def measured_threshold(
    accuracies: Sequence[float], largest_loss: float | None = None
) -> float | None:
    """By how much the metric varies from run to run without any switch: a threshold for the job.

    It is 3.37 standard deviations of the first three runs of the first protocol alone, which differ
    in their seeds and in nothing else. By so much a further such run ends below their mean once in
    20 times: the one-sided 95 % prediction limit for one value of a normal distribution of unknown
    mean and variance, t(0.95; n - 1) * s * sqrt(1 + 1 / n) (Hahn and Meeker, Statistical Intervals,
    section 4.8). So what loses more has lost it to the switch rather than to chance. Two runs would
    take 7.7 deviations, which are known far too badly. How the tests of one run wobble about their
    last level is no measure of this: a decayed learning rate calms them, and runs differ still.

    Args:
        accuracies: Of runs of the first protocol alone that did not diverge, in the order in which
            they are asked for; those after the third do not count, so that it never changes.
        largest_loss: The most accuracy that a run can lose; None for no limit.

    Returns:
        The threshold, rounded to two digits; None while there are fewer than three runs.

    Raises:
        UserError: All of them measured the same, so there is nothing to tell chance by.
    """
    known = accuracies[:THRESHOLD_RUNS]
    if len(known) < THRESHOLD_RUNS:
        return None
    deviation = statistics.stdev(known)
    if deviation <= ROUNDING * max(1.0, *map(abs, known)):
        raise UserError(
            f"{THRESHOLD_RUNS} runs of the first protocol alone measured the same, so they do not"
            " say how much worse a run may be: give --threshold"
        )
    threshold = float(f"{_DEVIATIONS * deviation:.2g}")
    return threshold if largest_loss is None else min(threshold, largest_loss / 2)
