"""The guard of a run: notices by evaluations that its switch has failed, and where to go back.

It needs the standard library alone, so that programs that train with another library can import it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from syncswitch.storage.metrics import converged_accuracy
from syncswitch.storage.records.flat import nested
from syncswitch.storage.records.guard import Band, FailedSwitch, GuardOutcome
from syncswitch.storage.records.job import OWN_RULES, ScheduledJob, protocol_text
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import (
    CONVERGENCE_EVALUATIONS,
    Evaluation,
    RunEvent,
    TrialRecord,
    TrialSpec,
)
from syncswitch.trainers.job.schedule import after_failures, switch_points, switch_worker_step
from syncswitch.trainers.run.fallback import Following
from syncswitch.trainers.run.own_evaluations import (
    IN_A_ROW,
    PACE_KEPT,
    Job,
    blown_up,
    failure,
    is_refuted,
    spread_of,
)
from syncswitch.trainers.run.record import Position, interpolated

_THRESHOLDS, _DEVIATIONS = 5.0, 4.0
"""Thresholds plus standard deviations that a good run may fall below the mean curve."""

_PRIOR_RUNS = 4.0
"""Weight, in runs, of the prior: evaluations differ by threshold and the curve's roughness."""

_NEAR = 0.05  # share of the job by which a run may lag behind where the curve is steep
_LEAST_MARGIN = 0.5
"""Thresholds beyond what may be lost by which a run is lower that will not get there, at least."""

_LOST_BY_SEED = 3.0
"""Thresholds that a run may lose in the end which has failed at an earlier switch already.

It holds where each worker keeps its own momentum. There it is the seed that loses them: the
first protocol alone would hardly do better.
"""

_MANY_TESTS = 50  # enough of them in a run for any guard
_ACCURACY = Metric()


class FailureDetector:
    """Decides by its evaluations whether a run has failed after its switch; pure.

    It compares them with the band. If that has no target, it looks for signs in them
    (`own_evaluations`).

    Args:
        band: Results of the first protocol alone.
        total_worker_steps: The length of the job.
        metric: What the evaluations measure.
        settled_at: The last worker-step at which the learning rate decays, of a job whose workers
            keep their own momentum after the switch; None for others. Such a run follows the
            curve of the first protocol, so one that is too low and hardly rises has failed.
        decays: Worker-steps at which the learning rate decays; None if unknown.
    """

    def __init__(
        self,
        band: Band,
        total_worker_steps: int,
        metric: Metric = _ACCURACY,
        settled_at: int | None = None,
        decays: Sequence[int] | None = (),
    ) -> None:
        self._band, self._metric, self._settled_at = band, metric, settled_at
        self._total_worker_steps = total_worker_steps
        self._steps = [point.worker_step for point in band.curve]
        self._means = [point.accuracy for point in band.curve]
        self._limits = _limits(band, total_worker_steps)
        is_alike = settled_at is not None
        self._job = Job(total_worker_steps, metric, band.threshold, is_alike, decays)

    def alarm(
        self,
        evaluations: Sequence[Evaluation],
        switch_worker_step: int,
        failures: int = 0,
        abandoned: AbandonedEvaluations | None = None,
    ) -> str | None:
        """Why the run has failed, as a clause with figures; None if it has not.

        `failures` is the number of earlier points at which its switches have failed, `abandoned`
        what it had after the last of these.
        """
        after = [one for one in evaluations if one.worker_step > switch_worker_step]
        if not after:
            return None
        last = after[-IN_A_ROW:]
        below = self._below(last) if len(last) == IN_A_ROW else None
        reason = below or blown_up(evaluations, switch_worker_step)
        if reason is not None:
            return reason
        if self._band.target_accuracy is None:
            # Who learns as slowly with the first protocol has no switch to blame.
            if abandoned is not None and is_refuted(
                abandoned.evaluations, evaluations, abandoned.begin, switch_worker_step, self._job
            ):
                return None
            return failure(evaluations, switch_worker_step, self._job)
        margin, allowed = self._band.margin, self._band.threshold
        if failures and self._settled_at is not None:
            allowed = max(allowed, _LOST_BY_SEED * allowed - margin)
        if after[-1].worker_step >= self._total_worker_steps:
            return self._missed(evaluations, allowed)
        return self._standing_still(after, allowed)

    def lowest_accuracy(self, worker_step: int) -> float:
        """The accuracy below which an evaluation at this step is low; -inf if it is not known."""
        if not self._steps or worker_step < self._steps[0]:
            return -math.inf
        return interpolated(worker_step, self._steps, self._limits)

    def _below(self, last: Sequence[Evaluation]) -> str | None:
        if any(one.accuracy >= self.lowest_accuracy(one.worker_step) for one in last):
            return None
        newest = last[-1]
        limit = self.lowest_accuracy(newest.worker_step)
        usual = interpolated(newest.worker_step, self._steps, self._means)
        text, side = self._metric.text, self._metric.words.worse_side
        return (
            f"{IN_A_ROW} evaluations in a row are {side} those of runs without a switch: "
            f"{text(newest.accuracy)}, where these have {text(usual)} and {text(limit)} is accepted"
        )

    def _standing_still(self, after: Sequence[Evaluation], allowed: float) -> str | None:
        recent = after[-2 * CONVERGENCE_EVALUATIONS :]
        target = self._band.target_accuracy
        if self._settled_at is None or target is None:
            return None
        # Without a curve nobody knows what a decay of the learning rate brings.
        known_from = self._steps[0] if self._steps else self._settled_at
        if len(recent) < 2 * CONVERGENCE_EVALUATIONS or recent[0].worker_step < known_from:
            return None
        earlier, newest = recent[:CONVERGENCE_EVALUATIONS], recent[CONVERGENCE_EVALUATIONS:]
        accuracy, done = converged_accuracy(newest), newest[-1].worker_step
        pace = (accuracy - converged_accuracy(earlier)) / max(1, done - earlier[-1].worker_step)
        rise = max(0.0, PACE_KEPT * pace * (self._total_worker_steps - done))
        if self._steps:
            usual = [interpolated(one.worker_step, self._steps, self._means) for one in newest]
            final = statistics.fmean(self._means[-CONVERGENCE_EVALUATIONS:])
            rise = max(rise, final - statistics.fmean(usual))
        band = self._band
        margin = max(band.margin, _LEAST_MARGIN * band.threshold)
        if accuracy + rise >= target - allowed - margin:
            return None
        level = f"it has {self._metric.text(accuracy)} and hardly improves, "
        return level + self._far_from_target(accuracy, target, allowed)

    def _missed(self, evaluations: Sequence[Evaluation], allowed: float) -> str | None:
        accuracy, margin = converged_accuracy(evaluations), self._band.margin
        target = self._band.target_accuracy
        # The margin allows for rounding.
        if target is None or accuracy >= target - allowed - margin - 1e-9:
            return None
        level = f"it ends with {self._metric.text(accuracy)}, "
        return level + self._far_from_target(accuracy, target, allowed)

    def _far_from_target(self, accuracy: float, target: float, allowed: float) -> str:
        metric, margin = self._metric, self._band.margin
        how_sure = f" and the margin of {margin:.2g}" if margin else ""
        return (
            f"{metric.amount(target - accuracy)} {metric.words.worse_side} the target"
            f" {metric.text(target)}, more than the accepted {metric.with_unit(f'{allowed:g}')}"
            f"{how_sure}"
        )


def _limits(band: Band, total_worker_steps: int) -> list[float]:
    """The lowest acceptable accuracy at each point of the curve."""
    means = [point.accuracy for point in band.curve]
    guessed = band.threshold**2 + spread_of(means) ** 2
    freedom = max(0, band.runs - 1)
    near = _NEAR * total_worker_steps
    limits = []
    for point in band.curve:
        measured = point.deviation**2
        variance = (_PRIOR_RUNS * guessed + freedom * measured) / (_PRIOR_RUNS + freedom)
        # The deviation of a single later run from a mean of few runs.
        deviation = math.sqrt(variance * (1 + 1 / max(1, band.runs)))
        step = point.worker_step
        lowest = min(
            one.accuracy for one in band.curve if step - near <= one.worker_step <= step + near
        )
        limits.append(lowest - (_THRESHOLDS * band.threshold + _DEVIATIONS * deviation))
    return limits


@dataclass(frozen=True, slots=True)
class AbandonedEvaluations:
    """The evaluations after a switch that has failed, which `begin` worker-steps preceded."""

    begin: int
    evaluations: tuple[Evaluation, ...]


class EarlyAbort:
    """The guard of a run of a search, which ends at its alarm: there is nothing to go back for."""

    def __init__(self, band: Band, identity: ScheduledJob, switch_worker_step: int) -> None:
        self._total_worker_steps = identity.total_worker_steps
        self._detector = FailureDetector(band, self._total_worker_steps, identity.metric)
        self._switch_worker_step = switch_worker_step
        self._alarm: RunEvent | None = None

    def check(self, evaluations: Sequence[Evaluation], tell: Callable[[RunEvent], None]) -> bool:
        """Checks all evaluations so far; tells an alarm once. The last one is the run's result."""
        newest = evaluations[-1]
        if newest.worker_step >= self._total_worker_steps:
            return False
        reason = self._detector.alarm(evaluations, self._switch_worker_step)
        if reason is None:
            return False
        is_told = self._alarm is not None  # the evaluation that ends the run may alarm again
        self._alarm = RunEvent("alarmed", newest.worker_step, newest.elapsed_seconds, reason)
        if not is_told:
            tell(self._alarm)
        return True

    def with_alarm(self, record: TrialRecord) -> TrialRecord:
        """The record of the run, with the alarm that ended it.

        Nothing is lost by an alarm: whatever was trained is the price of the run.
        """
        alarm = self._alarm
        if alarm is None:
            return record
        failed = FailedSwitch(
            record.spec.switch_percent,
            alarm.reason,
            alarm.worker_step,
            alarm.elapsed_seconds,
            lost_seconds=0.0,
            accuracy=record.evaluations[-1].accuracy if record.evaluations else None,
            second_protocol=record.spec.identity.second_protocol,
        )
        return replace(record, guard=GuardOutcome(None, (failed,)), events=(*record.events, alarm))


class SwitchGuard:
    """The guard of one run, which gets a later switch each time it goes back, until none is left.

    Attributes:
        spec: The trial as it is carried out now, see `after_failures`.
        failed: The switches that have failed.
        switch: Position to go back to; None before the switch, or if no state was kept.
        alarm: The reason why the run has to go back; None if it need not, or has done so.
    """

    def __init__(self, spec: TrialSpec) -> None:
        self._first_spec = self.spec = spec
        self._detector: FailureDetector | None = None
        self.failed: tuple[FailedSwitch, ...] = ()
        self.switch: Position | None = None
        self.alarm: str | None = None
        self._number = 0  # of the present switch, see `switch_points`
        self._abandoned: AbandonedEvaluations | None = None
        self._stays = False
        if spec.band is not None and spec.switch_percent < 100:
            identity = spec.identity
            settled_at, steps = None, identity.total_worker_steps
            boundaries = identity.recipe.learning_rate_boundaries
            decays = None if boundaries is None else [at for at, _ in boundaries]
            if identity.momentum_after_switch in OWN_RULES:
                settled_at = steps if decays is None else max(decays, default=0)
            self._detector = FailureDetector(spec.band, steps, identity.metric, settled_at, decays)

    @property
    def specs(self) -> list[TrialSpec]:
        """The trial as it was carried out for each switch so far; the last one is `spec`."""
        return [after_failures(self._first_spec, number) for number in range(self._number + 1)]

    @property
    def later_percent(self) -> float | None:
        """Where the run switches again once its present switch has failed; None if it does not."""
        percent = after_failures(self._first_spec, self._number + 1).switch_percent
        return None if percent >= 100 else percent

    def outcome(self, first_protocol_done: int) -> GuardOutcome | None:
        """The outcome, given the worker-steps done before the switch; None without a guard.

        A run that went back and did not reach another switch had the first protocol alone.
        """
        if self._detector is None and not self.failed and not self._stays:
            return None
        is_on_its_way = bool(self.failed) and first_protocol_done < switch_worker_step(self.spec)
        is_on_its_way |= self._stays
        return GuardOutcome(100.0 if is_on_its_way else self.spec.switch_percent, self.failed)

    @property
    def is_on(self) -> bool:
        """Whether an alarm is possible, now or after the switch."""
        return self._detector is not None and self.spec.switch_percent < 100

    def notices(self, every: int) -> bool:
        """Whether tests after each `every` worker-steps show at all that the switch has failed."""
        W, switch = self.spec.identity.total_worker_steps, switch_worker_step(self.spec)
        guard = self._detector
        if guard is None:
            return False
        if _MANY_TESTS * every < W:
            return True
        steps = (*range(every, W, every), W)
        # The worst that can happen: the run falls to nothing at the switch, or later.
        falls = (switch, switch + (W - switch) // 4)
        runs = (
            [Evaluation(at, 0.0, -1e9 * (at > fall), math.nan) for at in steps] for fall in falls
        )
        return any(
            guard.alarm(run[:number], switch) is not None
            for run in runs
            for number in range(1, len(run) + 1)
        )

    def give_up(self) -> None:
        """Ends the guard, because there is no state to go back to."""
        self._detector = None

    def stay(self) -> None:
        """Ends the guard, because the first protocol does the rest."""
        self._detector, self._stays = None, True

    def look(self, evaluations: Sequence[Evaluation]) -> None:
        if self._detector is not None and self.switch is not None:
            evaluations = (*self._first_spec.inherited_evaluations, *evaluations)
            before = self._number, self._abandoned
            reason = self._detector.alarm(evaluations, self.switch.done, *before)
            self.alarm = self.alarm or reason

    def try_going_back(self, failure: str) -> bool:
        """Whether the run can go back after this failure, instead of ending; raises the alarm."""
        if self._detector is None or self.switch is None:
            return False
        self.alarm = self.alarm or failure
        return True

    def go_back(
        self,
        done: int,
        now_seconds: float,
        evaluations: Sequence[Evaluation],
        *,
        is_kept: bool = True,
        second_protocol: str | None = None,
        following: Following | None = None,
    ) -> tuple[Position, RunEvent]:
        """Gives up the present switch because of the alarm; returns where to go back, and an event.

        Unless the state at the switch is kept, the run starts again. It had switched to
        `second_protocol`, None for that of the job, and does what was decided; None as `following`
        for its next switch, if any.
        """
        assert self.switch is not None
        assert self.alarm is not None
        mark, alarm, self.switch, self.alarm = self.switch, self.alarm, None, None
        after = tuple(one for one in evaluations if one.worker_step > mark.done)
        self._abandoned = AbandonedEvaluations(mark.done, after)
        lost_seconds = now_seconds - mark.elapsed_seconds
        accuracy = None  # without an evaluation after the switch
        if after:
            is_whole = evaluations[-1].worker_step >= self.spec.identity.total_worker_steps
            accuracy = converged_accuracy(evaluations) if is_whole else evaluations[-1].accuracy
        percent, job = self.spec.switch_percent, self.spec.identity
        second = second_protocol or job.second_protocol
        failed = FailedSwitch(percent, alarm, done, now_seconds, lost_seconds, accuracy, second)
        switch = None if following is None else following.switch
        goes_on, protocol = "starts over", job.first_protocol
        if following is not None and switch is None:
            self.fail(failed, len(switch_points(self._first_spec)) - 1)
        elif switch is not None and switch.percent == percent:
            self.fail(failed, self._number)
            protocol = switch.protocols.second_protocol
        else:
            self.fail(failed)
        if is_kept:
            goes_on = f"continues from the switch, after {mark.done:,} {job.step_noun}s"
        reason = f"{alarm}; {protocol_text(protocol)} {goes_on}"
        if percent < self.spec.switch_percent < 100:
            reason += f", and the next switch is at {self.spec.switch_percent:g} %"
        return mark, RunEvent("alarmed", done, now_seconds, reason, seconds=lost_seconds)

    def history(self) -> dict[str, Any]:
        """The switches that have failed and those that are left, as JSON."""
        return {
            "failed": [asdict(one) for one in self.failed],
            "retry_percents": self._first_spec.retry_percents,
            "switch": self._number,
            "given_up": None if self._abandoned is None else asdict(self._abandoned),
        }

    def remember(self, history: dict[str, Any]) -> None:
        """Restores a history, whether the run has a guard now or not."""
        self._first_spec = replace(
            self._first_spec, retry_percents=tuple(history["retry_percents"])
        )
        self.failed = tuple(nested(FailedSwitch, one) for one in history["failed"])
        # In older versions each failure led to the next switch.
        self._begin(history.get("switch", len(self.failed)))
        if (abandoned := history["given_up"]) is not None:
            evaluations = tuple(Evaluation.of(one) for one in abandoned["evaluations"])
            abandoned = AbandonedEvaluations(abandoned["begin"], evaluations)
        self._abandoned = abandoned

    def fail(self, failed: FailedSwitch, number: int | None = None) -> None:
        """Records that the present switch has failed; `spec` now has that of this number.

        None stands for the next one.
        """
        self.failed = (*self.failed, failed)
        self._begin(self._number + 1 if number is None else number)

    def _begin(self, number: int) -> None:
        self._number, self.spec = number, after_failures(self._first_spec, number)
