"""What a training with a policy is held against: how the first protocol alone did; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.trial import Evaluation

_MOST_POINTS = 200


def measured_band(
    target_accuracy: float, threshold: float, curves: Iterable[Sequence[Evaluation]]
) -> Band:
    """The band of what runs of the first protocol alone tested after the same worker-steps.

    A test between two of another run is compared with what lies between them. A run that was
    stopped counts as far as it went; the longest one says where the tests are. Of very many tests
    200 stay, evenly spread, the last one among them.

    Args:
        target_accuracy: A.
        threshold: beta.
        curves: All tests of each run that did not diverge, in the order of their worker-steps.
    """
    known = [
        ([test.worker_step for test in curve], [test.accuracy for test in curve])
        for curve in curves
        if curve
    ]
    longest, _ = max(known, key=lambda curve: (curve[0][-1], -len(curve[0])), default=((), ()))
    points = tuple(_point(step, known) for step in _thin(longest))
    return Band(target_accuracy, threshold, len(known), points)


def _thin(steps: Sequence[int]) -> list[int]:
    if len(steps) <= _MOST_POINTS:
        return list(steps)
    kept = np.linspace(0, len(steps) - 1, _MOST_POINTS).round().astype(int)
    return [steps[position] for position in kept]


def _point(worker_step: int, curves: Iterable[tuple[list[int], list[float]]]) -> BandPoint:
    accuracies = [
        float(np.interp(worker_step, steps, tests))
        for steps, tests in curves
        if steps[0] <= worker_step <= steps[-1]
    ]
    deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
    return BandPoint(worker_step, statistics.fmean(accuracies), deviation)
