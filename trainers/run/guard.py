"""Finds that a run fails after its switch, from its tests alone; pure.

The standard library does: whoever trains with another library imports this as well.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence

from syncswitch.storage.metrics import converged_accuracy
from syncswitch.storage.records.guard import Band, target_error
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import Evaluation

_IN_A_ROW = 3
"""A test may be unlucky; so many one after the other are not."""

_THRESHOLDS, _DEVIATIONS = 5.0, 4.0
"""A run that keeps the accuracy in the end stays above the mean curve less these of each."""

_PRIOR_RUNS = 4.0
"""So many runs the guess weighs that tests scatter by the threshold, and as the curve is rough."""

_NEAR = 0.05
"""Share of the job by which a run may be late, where the curve is steep."""

_BLOWN_UP = 2.0
"""Times the highest training loss before the switch."""

_ACCURACY = Metric()


class Guard:
    """Says when a run fails after its switch. The same tests get the same answer.

    Args:
        band: What the first protocol alone has shown.
        total_worker_steps: W.
        metric: Of the job; says in which unit an alarm gives its figures.
    """

    def __init__(self, band: Band, total_worker_steps: int, metric: Metric = _ACCURACY) -> None:
        self._band, self._metric = band, metric
        self._total_worker_steps = total_worker_steps
        self._steps = [point.worker_step for point in band.curve]
        self._means = [point.accuracy for point in band.curve]
        self._limits = _limits(band, total_worker_steps)

    def alarm(self, evaluations: Sequence[Evaluation], switch_worker_step: int) -> str | None:
        """Why the run fails, as a clause with figures; None while it does not.

        Args:
            evaluations: All tests so far, those before the switch included.
            switch_worker_step: Worker-steps done at the switch.
        """
        before = [one for one in evaluations if one.worker_step <= switch_worker_step]
        after = evaluations[len(before) :]
        if not after:
            return None
        last = after[-_IN_A_ROW:]
        found = (self._below(last) if len(last) == _IN_A_ROW else None) or _blown_up(before, last)
        if found is None and after[-1].worker_step >= self._total_worker_steps:
            return self._missed(evaluations)
        return found

    def lowest_accuracy(self, worker_step: int) -> float | None:
        """Below which a test is low after so many worker-steps; None where nobody knows."""
        if not self._steps or worker_step < self._steps[0]:
            return None
        return _between(worker_step, self._steps, self._limits)

    def _below(self, last: Sequence[Evaluation]) -> str | None:
        for one in last:
            limit = self.lowest_accuracy(one.worker_step)
            if limit is None or one.accuracy >= limit:
                return None
        newest = last[-1]
        usual = _between(newest.worker_step, self._steps, self._means)
        text, side = self._metric.text, "above" if self._metric.is_less_better else "below"
        assert limit is not None
        return (
            f"{_IN_A_ROW} tests in a row are {side} what the first protocol alone reaches: "
            f"{text(newest.accuracy)}, where it has {text(usual)} and {text(limit)} is allowed"
        )

    def _missed(self, evaluations: Sequence[Evaluation]) -> str | None:
        accuracy, target = converged_accuracy(evaluations), self._band.target_accuracy
        error = target_error(self._band.threshold, self._band.runs)
        # The margin forgives the last bit of a difference of two floats.
        if accuracy >= target - self._band.threshold - error - 1e-9:
            return None
        how_sure = f", and the target is known to {error:.2g}" if error else ""
        metric, side = self._metric, "above" if self._metric.is_less_better else "below"
        allowed = metric.with_unit(f"{self._band.threshold:g}")
        return (
            f"it ends with {metric.text(accuracy)}, {metric.amount(target - accuracy)} {side} the"
            f" target {metric.text(target)}, where {allowed} may be lost{how_sure}"
        )


def _blown_up(before: Sequence[Evaluation], last: Sequence[Evaluation]) -> str | None:
    losses = [one.training_loss for one in before if math.isfinite(one.training_loss)]
    highest = max(losses, default=0.0)
    if len(last) < _IN_A_ROW or highest <= 0.0:
        return None
    # Where nothing was trained between two tests there is no loss.
    if not all(one.training_loss > _BLOWN_UP * highest for one in last):
        return None
    return (
        f"the training loss has blown up: {last[-1].training_loss:.4g}, "
        f"and {highest:.4g} at most before the switch"
    )


def _limits(band: Band, total_worker_steps: int) -> list[float]:
    """The lowest accuracy that is not low, at each point of the curve."""
    means = [point.accuracy for point in band.curve]
    guessed = band.threshold**2 + _roughness(means) ** 2
    freedom = max(0, band.runs - 1)
    near = _NEAR * total_worker_steps
    limits = []
    for point in band.curve:
        measured = point.deviation**2
        variance = (_PRIOR_RUNS * guessed + freedom * measured) / (_PRIOR_RUNS + freedom)
        # Of a single later run, around a mean of few.
        deviation = math.sqrt(variance * (1 + 1 / max(1, band.runs)))
        step = point.worker_step
        lowest = min(
            one.accuracy for one in band.curve if step - near <= one.worker_step <= step + near
        )
        limits.append(lowest - (_THRESHOLDS * band.threshold + _DEVIATIONS * deviation))
    return limits


def _roughness(means: Sequence[float]) -> float:
    """How far the points of a curve typically lie from the line between their neighbours."""
    if len(means) < 3:
        return 0.0
    bends = [
        abs(mean - (before + after) / 2)
        for before, mean, after in zip(means, means[1:], means[2:], strict=False)
    ]
    # Of independent points with a deviation of 1, a bend has the root of 1.5.
    return statistics.median(bends) / (0.6745 * math.sqrt(1.5))


def _between(step: float, steps: Sequence[int], values: Sequence[float]) -> float:
    """The value at a step on the line between its neighbours; the last one after the last step."""
    after = bisect_right(steps, step)
    if after == len(steps):
        return values[-1]
    before = after - 1
    share = (step - steps[before]) / (steps[after] - steps[before])
    return values[before] + share * (values[after] - values[before])
