"""The baseline that candidates are compared with: runs of the first protocol alone."""

from __future__ import annotations

from collections.abc import Iterable

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
