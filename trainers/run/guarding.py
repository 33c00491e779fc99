"""What a run knows of its guard: where it would go back to, and which of its switches failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialSpec
from syncswitch.trainers.job.schedule import after_failures, switch_worker_step
from syncswitch.trainers.run.guard import Guard
from syncswitch.trainers.run.position import LogMark


class Guarding:
    """Of one run. Each time that it goes back it has a later switch, until there is none left.

    Attributes:
        plan: The trial as it is now carried out, see `after_failures`.
        failed: The switches that failed.
        switch: To where it goes back; None before the switch, and where nobody kept the state.
        alarm: Why it has to go back, which it has not done yet.
    """

    def __init__(self, spec: TrialSpec) -> None:
        self._spec = self.plan = spec
        self._guard: Guard | None = None
        self.failed: tuple[FailedSwitch, ...] = ()
        self.switch: LogMark | None = None
        self.alarm: str | None = None
        if spec.band is not None and spec.switch_percent < 100:
            identity = spec.identity
            self._guard = Guard(spec.band, identity.total_worker_steps, identity.decided_by)

    @property
    def plans(self) -> list[TrialSpec]:
        """The trial as it was carried out, one plan after the other; the last is `plan`."""
        return [after_failures(self._spec, failures) for failures in range(len(self.failed) + 1)]

    def outcome(self, first_protocol_done: int) -> GuardOutcome | None:
        """What has come of it; None where the run has no guard.

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
        """There is no state to go back to."""
        self._guard = None

    def look(self, evaluations: Sequence[Evaluation]) -> None:
        """Looks at all tests so far."""
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
    ) -> tuple[LogMark, RunEvent]:
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
        percent, accuracy = self.plan.switch_percent, accuracy_since(evaluations, mark.done)
        failed = FailedSwitch(percent, alarm, done, now_seconds, lost_seconds, accuracy)
        self.fail(failed)
        reason = f"{alarm}; {self._spec.identity.first_protocol} goes on from the switch"
        reason += f", after {mark.done:,} worker-steps{next_switch_text(self.plan)}"
        return mark, RunEvent("alarmed", done, now_seconds, reason, seconds=lost_seconds)

    def history(self) -> dict[str, Any]:
        """Which switches failed, and which are left, as JSON."""
        failed = [asdict(one) for one in self.failed]
        return {"failed": failed, "retry_percents": self._spec.retry_percents}

    def remember(self, known: dict[str, Any]) -> None:
        """Takes a history over, whether the run has a guard now or not."""
        self._spec = replace(self._spec, retry_percents=tuple(known["retry_percents"]))
        self.failed = ()
        for one in known["failed"]:
            self.fail(FailedSwitch(**one))

    def fail(self, failed: FailedSwitch) -> None:
        """The present switch has failed; the plan has the next one."""
        self.failed = (*self.failed, failed)
        self.plan = after_failures(self._spec, len(self.failed))


def accuracy_since(evaluations: Sequence[Evaluation], worker_step: int) -> float | None:
    """Of the last test; None where that is not of a later worker-step."""
    is_later = bool(evaluations) and evaluations[-1].worker_step > worker_step
    return evaluations[-1].accuracy if is_later else None


def next_switch_text(plan: TrialSpec) -> str:
    """Where a run that has gone back switches again, as the end of a clause; empty for nowhere."""
    percent = plan.switch_percent
    return f", and the next switch is at {percent:g} %" if percent < 100 else ""
