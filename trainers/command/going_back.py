"""What comes of a run of a command that failed after its switch, and went on without; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syncswitch.storage.records.guard import GuardOutcome
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, RunEvent, TrialSpec
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.run.guard import Guard
from syncswitch.trainers.run.record import RunResult


class CommandGuard:
    """Looks at the results of a guarded run.

    Args:
        spec: The trial; it has a band, and switches before its end.
    """

    def __init__(self, spec: TrialSpec) -> None:
        assert spec.band is not None
        self._total = spec.identity.total_worker_steps
        self._switch = switch_worker_step(spec)
        self._guard = Guard(spec.band, self._total, spec.identity.decided_by)

    @classmethod
    def of(cls, spec: TrialSpec) -> CommandGuard | None:
        """None for a run without a band, or without a switch to go back to."""
        return cls(spec) if spec.band is not None and spec.switch_percent < 100 else None

    def alarm(self, evaluations: Sequence[Evaluation], *, is_over: bool = False) -> str | None:
        """Why the run fails, as a clause; None while it does not.

        Args:
            evaluations: So far.
            is_over: The command has ended; what it tested last may be of a step before its last.
        """
        tests = list(evaluations)
        if is_over and tests:
            tests[-1] = replace(tests[-1], worker_step=self._total)
        return self._guard.alarm(tests, self._switch)

    def diverged(self, step: int | None) -> str | None:
        """The same of a run that said so at a step; None where that was before its switch."""
        if step is not None and step < self._switch:
            return None
        return "it diverged"


def alarm_event(spec: TrialSpec, failed: RunResult, alarm: str, *, is_resumed: bool) -> RunEvent:
    """What is told of a run that failed."""
    whence = "from its checkpoint at the switch" if is_resumed else "from its start"
    reason = f"{alarm}; it goes on with {spec.identity.first_protocol} alone, {whence}"
    lost_seconds = failed.training_seconds - _kept_seconds(spec, failed, is_resumed)
    return RunEvent(
        "alarmed", failed.worker_steps, failed.training_seconds, reason, seconds=lost_seconds
    )


def whole_result(
    spec: TrialSpec, failed: RunResult, alarm: str, rest: RunResult, *, is_resumed: bool
) -> RunResult:
    """One run of both: what was lost stays on the clock, and its results are left out.

    Args:
        spec: The trial.
        failed: Up to the alarm.
        alarm: Why it failed.
        rest: With the first protocol alone; its clock began with it.
        is_resumed: It went on from the switch; else it began anew.
    """
    event = alarm_event(spec, failed, alarm, is_resumed=is_resumed)
    start = switch_worker_step(spec) if is_resumed else 0
    kept_seconds = _kept_seconds(spec, failed, is_resumed)
    before = failed.training_seconds
    kept = [one for one in failed.evaluations if is_resumed and one.worker_step <= start]
    made = [
        replace(one, elapsed_seconds=before + one.elapsed_seconds)
        for one in rest.evaluations
        if not is_resumed or one.worker_step > start
    ]
    phase = PhaseRecord(
        spec.identity.first_protocol,
        0,
        rest.worker_steps,
        kept_seconds + rest.training_seconds,
        mean_staleness=None,
        max_staleness=None,
    )
    return replace(
        rest,
        evaluations=(*kept, *made),
        phases=(phase,),
        training_seconds=before + rest.training_seconds,
        events=(event,),
        guard=GuardOutcome(alarm, failed.worker_steps, event.seconds or 0.0),
    )


def _kept_seconds(spec: TrialSpec, failed: RunResult, is_resumed: bool) -> float:
    """Of the part before the switch, where it was not made again."""
    first = spec.identity.first_protocol
    return sum(one.seconds for one in failed.phases if is_resumed and one.protocol == first)
