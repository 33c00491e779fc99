"""What a run knows of its guard: where it would go back to, and whether it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from syncswitch.storage.records.guard import GuardOutcome
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialSpec
from syncswitch.trainers.job.schedule import switches_since
from syncswitch.trainers.run.guard import Guard
from syncswitch.trainers.run.position import LogMark


class Guarding:
    """Of one run. It goes back once: from then on there is nothing to go back from.

    Attributes:
        switch: To where it goes back; None before the switch, and where nobody kept the state.
        alarm: Why it has to go back, which it has not done yet.
        outcome: What has come of it; None where the run has no guard.
    """

    def __init__(self, spec: TrialSpec) -> None:
        self._spec = spec
        self._guard: Guard | None = None
        self.switch: LogMark | None = None
        self.alarm: str | None = None
        self.outcome: GuardOutcome | None = None
        if spec.band is not None and spec.switch_percent < 100:
            self._guard = Guard(
                spec.band, spec.identity.total_worker_steps, spec.identity.decided_by
            )
            self.outcome = GuardOutcome()

    @property
    def plan(self) -> TrialSpec:
        """The trial as it is now carried out: after an alarm the first protocol goes on alone."""
        return replace(self._spec, switch_percent=100.0) if self.has_gone_back else self._spec

    @property
    def has_gone_back(self) -> bool:
        """Whether there was an alarm."""
        return self.outcome is not None and self.outcome.alarm is not None

    @property
    def is_on(self) -> bool:
        """Whether there may be an alarm, now or after the switch."""
        return self._guard is not None and not self.has_gone_back

    def is_on_at(self, done: int) -> bool:
        """The same where it may go back to what is now: the switch, and none after it."""
        return self.is_on and switches_since(self._spec, done) == 0

    def give_up(self) -> None:
        """There is no state to go back to."""
        self._guard = self.outcome = None

    def look(self, evaluations: Sequence[Evaluation]) -> None:
        """Looks at all tests so far."""
        if self._guard is not None and self.is_on and self.switch is not None:
            inherited = self._spec.inherited_evaluations
            found = self._guard.alarm((*inherited, *evaluations), self.switch.done)
            self.alarm = self.alarm or found

    def catches(self, failure: str) -> bool:
        """Whether the run can go back instead of ending because of this."""
        if not self.is_on or self.switch is None:
            return False
        self.alarm = self.alarm or failure
        return True

    def go_back(self, done: int, now_seconds: float) -> tuple[LogMark, RunEvent]:
        """Heeds the alarm, after so many worker-steps.

        Returns:
            Where to go back to, and what is to be told.
        """
        assert self.switch is not None
        assert self.alarm is not None
        mark, alarm, self.alarm = self.switch, self.alarm, None
        lost_seconds = now_seconds - mark.elapsed_seconds
        self.outcome = GuardOutcome(alarm, done, lost_seconds)
        first = self._spec.identity.first_protocol
        reason = f"{alarm}; {first} goes on from the switch, after {mark.done:,} worker-steps"
        return mark, RunEvent("alarmed", done, now_seconds, reason, seconds=lost_seconds)

    def history(self) -> dict[str, Any] | None:
        """An alarm that there has been, as JSON."""
        return asdict(self.outcome) if self.outcome is not None and self.has_gone_back else None

    def remember(self, known: dict[str, Any] | None) -> None:
        """Takes a history over, whether the run has a guard now or not."""
        if known is not None:
            self.outcome = GuardOutcome(**known)
