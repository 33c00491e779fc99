"""The guard of a run: finds from its tests alone that its switch fails, and where it goes back.

It needs the standard library alone, as those import it who train with another library.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from syncswitch.storage.metrics import converged_accuracy
from syncswitch.storage.records.guard import Band, FailedSwitch, GuardOutcome, target_error
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialSpec
from syncswitch.trainers.job.schedule import after_failures, switch_worker_step
from syncswitch.trainers.run.record import Position

_IN_A_ROW = 3
"""A test may be unlucky; so many one after the other are not."""

_THRESHOLDS, _DEVIATIONS = 5.0, 4.0
"""A run that keeps the accuracy in the end stays above the mean curve less these of each."""

_PRIOR_RUNS = 4.0
"""Weight, in runs, of the prior that tests scatter by the threshold and the curve's roughness."""

_NEAR = 0.05
"""Share of the job by which a run may be late, where the curve is steep."""

_BLOWN_UP = 2.0
"""Times the highest training loss before the switch."""

_ACCURACY = Metric()


class Guard:
    """Says when a run fails after its switch. The same tests get the same answer.

    Args:
        band: Results of the first protocol alone.
        total_worker_steps: W.
        metric: Metric of the job, with the unit in which an alarm gives its figures.
    """

    def __init__(self, band: Band, total_worker_steps: int, metric: Metric = _ACCURACY) -> None:
        self._band, self._metric = band, metric
        self._total_worker_steps = total_worker_steps
        self._steps = [point.worker_step for point in band.curve]
        self._means = [point.accuracy for point in band.curve]
        self._limits = _limits(band, total_worker_steps)

    def alarm(self, evaluations: Sequence[Evaluation], switch_worker_step: int) -> str | None:
        """The reason why the run fails, as a clause with figures; None while it does not.

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
        """The accuracy below which a test is low after so many worker-steps; None if not known."""
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
    """The typical distance of the points of a curve from the line between their neighbours."""
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


class Guarding:
    """The guard of one run. Each time it goes back it gets a later switch, until none is left.

    Attributes:
        plan: The trial as it is now carried out, see `after_failures`.
        failed: The switches that failed.
        switch: Position to which it goes back; None before the switch, or where no state was kept.
        alarm: The reason why it has to go back, which it has not done yet.
    """

    def __init__(self, spec: TrialSpec) -> None:
        self._spec = self.plan = spec
        self._guard: Guard | None = None
        self.failed: tuple[FailedSwitch, ...] = ()
        self.switch: Position | None = None
        self.alarm: str | None = None
        if spec.band is not None and spec.switch_percent < 100:
            identity = spec.identity
            self._guard = Guard(spec.band, identity.total_worker_steps, identity.decided_by)

    @property
    def plans(self) -> list[TrialSpec]:
        """The trial as it was carried out, one plan after the other; the last is `plan`."""
        return [after_failures(self._spec, failures) for failures in range(len(self.failed) + 1)]

    def outcome(self, first_protocol_done: int) -> GuardOutcome | None:
        """The outcome; None where the run has no guard.

        Args:
            first_protocol_done: Worker-steps before the switch. A run that went back, and came to
                no further switch, had the first protocol alone.
        """
        if self._guard is None and not self.failed:
            return None
        is_on_its_way = bool(self.failed) and first_protocol_done < switch_worker_step(self.plan)
        return GuardOutcome(100.0 if is_on_its_way else self.plan.switch_percent, self.failed)

    @property
    def is_on(self) -> bool:
        """Whether there may be an alarm, now or after the switch."""
        return self._guard is not None and self.plan.switch_percent < 100

    def give_up(self) -> None:
        """Ends the guard, as there is no state to go back to."""
        self._guard = None

    def look(self, evaluations: Sequence[Evaluation]) -> None:
        """Looks at all tests so far, and may raise the alarm."""
        if self._guard is not None and self.switch is not None:
            inherited = self._spec.inherited_evaluations
            found = self._guard.alarm((*inherited, *evaluations), self.switch.done)
            self.alarm = self.alarm or found

    def catches(self, failure: str) -> bool:
        """Whether the run can go back instead of ending because of this."""
        if self._guard is None or self.switch is None:
            return False
        self.alarm = self.alarm or failure
        return True

    def go_back(
        self, done: int, now_seconds: float, evaluations: Sequence[Evaluation]
    ) -> tuple[Position, RunEvent]:
        """Heeds the alarm.

        Args:
            done: Worker-steps done.
            now_seconds: Training time.
            evaluations: All tests so far.

        Returns:
            Where to go back to, and what is to be told.
        """
        assert self.switch is not None
        assert self.alarm is not None
        mark, alarm, self.switch, self.alarm = self.switch, self.alarm, None, None
        lost_seconds = now_seconds - mark.elapsed_seconds
        accuracy = failed_accuracy(evaluations, mark.done, self.plan.identity.total_worker_steps)
        percent = self.plan.switch_percent
        failed = FailedSwitch(percent, alarm, done, now_seconds, lost_seconds, accuracy)
        self.fail(failed)
        reason = f"{alarm}; {self._spec.identity.first_protocol} goes on from the switch"
        reason += f", after {mark.done:,} worker-steps{next_switch_text(self.plan)}"
        return mark, RunEvent("alarmed", done, now_seconds, reason, seconds=lost_seconds)

    def history(self) -> dict[str, Any]:
        """The switches that failed and those that are left, as JSON."""
        failed = [asdict(one) for one in self.failed]
        return {"failed": failed, "retry_percents": self._spec.retry_percents}

    def remember(self, known: dict[str, Any]) -> None:
        """Takes a history over, whether the run has a guard now or not."""
        self._spec = replace(self._spec, retry_percents=tuple(known["retry_percents"]))
        self.failed = ()
        for one in known["failed"]:
            self.fail(FailedSwitch(**one))

    def fail(self, failed: FailedSwitch) -> None:
        """Records that the present switch has failed; the plan then has the next one."""
        self.failed = (*self.failed, failed)
        self.plan = after_failures(self._spec, len(self.failed))


def failed_accuracy(
    evaluations: Sequence[Evaluation], switched_after: int, total_worker_steps: int
) -> float | None:
    """Return the accuracy that a `FailedSwitch` states.

    Args:
        evaluations: All tests up to the alarm.
        switched_after: Worker-steps done at the switch.
        total_worker_steps: W.
    """
    if not evaluations or evaluations[-1].worker_step <= switched_after:
        return None
    is_whole = evaluations[-1].worker_step >= total_worker_steps
    return converged_accuracy(evaluations) if is_whole else evaluations[-1].accuracy


def next_switch_text(plan: TrialSpec) -> str:
    """Where a run that went back switches again, as the end of a clause; empty for nowhere."""
    percent = plan.switch_percent
    return f", and the next switch is at {percent:g} %" if percent < 100 else ""
